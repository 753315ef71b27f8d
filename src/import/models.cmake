# SPDX-License-Identifier: MIT
# Models in Hugging Face folders, and their conversion.
qsf_library(import_models
  SOURCES hf_config.cc hf_model.cc json_text.cc safetensors.cc transcode.cc transcode_types.cc
  DEPS base quant io format
  PRIVATE_DEPS qsf_json Threads::Threads)
