# SPDX-License-Identifier: MIT
# Models in Hugging Face folders, and their conversion.
qsf_library(import_models
  SOURCES checkpoint.cc hf_config.cc hf_model.cc json_text.cc safetensors.cc sharded_checkpoint.cc
          transcode.cc transcode_types.cc
  DEPS base quant io format
  PRIVATE_DEPS qsf_json Threads::Threads)
foreach(name IN ITEMS safetensors hf_config hf_model transcode)
  qsf_test(${name}_test SOURCES ${name}_test.cc DEPS import_models io_testing PRIVATE_DEPS qsf_json LABELS unit)
endforeach()
