# SPDX-License-Identifier: MIT
# Models in Hugging Face folders and GGUF files, and their conversion.
qsf_library(import_models
  SOURCES checkpoint.cc column_importance.cc config_fields.cc encode_rows.cc format_choice.cc gguf_arch.cc gguf_arch_rope.cc gguf_fields.cc
          gguf_file.cc gguf_model.cc hadamard_rotation.cc hf_chat_template.cc hf_config.cc hf_families.cc hf_family_bitnet.cc
          hf_family_gemma.cc
          hf_family_gpt.cc hf_family_llama.cc hf_family_phi.cc hf_family_rope.cc hf_model.cc
          hf_tensors.cc i2s_dead_channels.cc i2s_decoder.cc i2s_flavor.cc json_text.cc pytorch_globals.cc pytorch_model.cc pytorch_opcodes.cc
          pytorch_pickle_input.cc pytorch_state_dict.cc pytorch_unpickler.cc pytorch_zip.cc
          random_blocks.cc random_model.cc random_shapes.cc saved_sections.cc
          rotated_model.cc safetensors.cc sharded_checkpoint.cc strided_read.cc tensor_formats.cc transcode.cc transcode_types.cc
  DEPS base quant io format tokenizer import_tokenizer
  PRIVATE_DEPS qsf_json Threads::Threads)
foreach(name IN ITEMS column_importance gguf_file gguf_model hadamard_rotation rotated_model safetensors pytorch_model pytorch_unpickler hf_bitnet hf_chat_template hf_config hf_families hf_model
                      hf_tensors i2s_dead_channels i2s_decoder i2s_flavor random_model saved_sections transcode transcode_keep)
  qsf_test(${name}_test SOURCES ${name}_test.cc DEPS import_models io_testing PRIVATE_DEPS qsf_json LABELS unit)
endforeach()
