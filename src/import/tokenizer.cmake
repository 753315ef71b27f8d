# SPDX-License-Identifier: MIT
#
# Importing tokenizers, and the GGUF directory they may stand in.
qsf_library(import_ggml
  SOURCES ggml_decode.cc ggml_decode_k.cc ggml_decode_ternary.cc ggml_repack.cc ggml_repack_ternary.cc ggml_types.cc
  DEPS base quant)
qsf_library(import_tokenizer
  SOURCES byte_alphabet.cc gguf_pretokenizers.cc gguf_reader.cc gguf_tokenizer.cc hf_pipeline.cc
          hf_tokenizer.cc hf_tokenizer_json.cc hf_vocabulary.cc sentencepiece_model.cc
          vocabulary_limit.cc
  DEPS base tokenizer import_ggml
  PRIVATE_DEPS qsf_json)
qsf_test(ggml_types_test
  SOURCES ggml_types_test.cc
  DEPS base quant import_ggml
  LABELS unit golden)
qsf_test(ggml_repack_test
  SOURCES ggml_repack_test.cc
  DEPS base quant import_ggml
  LABELS unit)
qsf_test(ggml_repack_ternary_test
  SOURCES ggml_repack_ternary_test.cc
  DEPS base quant import_ggml
  LABELS unit)
qsf_test(encode_pieces_test
  SOURCES encode_pieces_test.cc
  DEPS base tokenizer import_tokenizer
  LABELS unit)
qsf_test(gguf_tokenizer_test
  SOURCES gguf_tokenizer_test.cc
  DEPS base tokenizer import_tokenizer
  LABELS unit)
qsf_test(hf_tokenizer_test
  SOURCES hf_tokenizer_test.cc
  DEPS base tokenizer import_tokenizer
  PRIVATE_DEPS qsf_json
  LABELS unit)
qsf_test(vocabulary_limit_test
  SOURCES vocabulary_limit_test.cc
  DEPS base tokenizer import_tokenizer
  LABELS unit)
