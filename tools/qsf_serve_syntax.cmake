# SPDX-License-Identifier: MIT
#
# Tool calls and reasoning in the answers of models, for `qsf serve`.
add_library(qsf_serve_syntax STATIC serve/syntax/answer_parser.cc serve/syntax/argument_reader.cc
            serve/syntax/call_reader.cc serve/syntax/channel_parser.cc serve/syntax/chat_syntax.cc
            serve/syntax/json_text.cc serve/syntax/tool_grammar.cc serve/syntax/tool_schema.cc)
target_link_libraries(qsf_serve_syntax PRIVATE qsf_flags qsf_json)
qsf_compile_together(qsf_serve_syntax)
qsf_optimise_lightly(qsf_serve_syntax)
# Some use the engine of grammars and the templates that write calls.
qsf_test(serve_syntax_test
  SOURCES serve/syntax/answer_parser_test.cc serve/syntax/answer_texts_test.cc
          serve/syntax/argument_reader_test.cc serve/syntax/chat_syntax_test.cc
          serve/syntax/family_conversations_test.cc serve/syntax/json_text_test.cc
          serve/syntax/tool_grammar_accepts_test.cc serve/syntax/tool_grammar_test.cc
  DEPS serve_syntax chat grammar PRIVATE_DEPS qsf_json LABELS unit)
