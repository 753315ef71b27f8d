# SPDX-License-Identifier: MIT
#
# Importing tokenizers, and the GGUF directory they may stand in.
qsf_library(import_tokenizer
  SOURCES byte_alphabet.cc gguf_pretokenizers.cc gguf_reader.cc gguf_tokenizer.cc
  DEPS base tokenizer)
qsf_test(gguf_tokenizer_test
  SOURCES gguf_tokenizer_test.cc
  DEPS base tokenizer import_tokenizer
  LABELS unit)
