# SPDX-License-Identifier: MIT
qsf_program(convert
  SOURCES convert/convert_adapter.cc
          convert/convert_calibrate.cc
          convert/convert_checks.cc
          convert/convert_main.cc
          convert/convert_options.cc
          convert/convert_report.cc
          convert/convert_tune.cc
          convert/convert_work.cc
  DEPS qsf_calibrate qsf_convert_head qsf_convert_tune qsf_import_models qsf_import_tokenizer qsf_json Threads::Threads)
qsf_test(qsf_convert_test SOURCES convert/qsf_convert_test.cc DEPS convert PRIVATE_DEPS qsf_json LABELS unit)
qsf_test(qsf_convert_adapter_test SOURCES convert/qsf_convert_adapter_test.cc DEPS convert LABELS unit)
qsf_test(qsf_convert_calibration_test
  SOURCES convert/qsf_convert_calibration_test.cc convert/qsf_convert_experts_test.cc
          convert/qsf_convert_states_test.cc convert/qsf_convert_target_test.cc
  DEPS convert LABELS ${qsf_many_runs_label} TIMEOUT 1200)
qsf_test(qsf_convert_work_test SOURCES convert/qsf_convert_work_test.cc DEPS convert LABELS ${qsf_many_runs_label})
qsf_test(qsf_convert_tune_test SOURCES convert/qsf_convert_tune_test.cc DEPS convert LABELS ${qsf_many_runs_label})
if(QSF_BUILD_TESTS)
  add_dependencies(qsf_convert_tune_test qsf)
  add_dependencies(qsf_convert_test qsf)
  add_dependencies(qsf_convert_adapter_test qsf)
  add_dependencies(qsf_convert_work_test qsf)
  add_dependencies(qsf_convert_calibration_test qsf)
endif()
