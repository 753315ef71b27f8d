// SPDX-License-Identifier: MIT
//
// Templates for models whose file has none, in the format of their family.

#include "chat/chat_template.h"

namespace qsf {
namespace {

constexpr std::string_view kChatml = R"({%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

// The system message is part of the next user message.
constexpr std::string_view kLlama2 = R"({%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- set ns.system = '<<SYS>>\n' ~ message.content ~ '\n<</SYS>>\n\n' %}
{%- elif message.role == 'user' %}
{{- bos_token ~ '[INST] ' ~ (ns.system ~ message.content) | trim ~ ' [/INST]' }}
{%- set ns.system = '' %}
{%- else %}
{{- ' ' ~ message.content | trim ~ ' ' ~ eos_token }}
{%- endif %}
{%- endfor %})";

constexpr std::string_view kLlama3 = R"({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' }}
{{- message.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})";

// The system message comes before the next user message, with a blank line between.
constexpr std::string_view kMistral = R"({{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- set ns.system = message.content ~ '\n\n' %}
{%- elif message.role == 'user' %}
{{- '[INST] ' ~ ns.system ~ message.content ~ ' [/INST]' }}
{%- set ns.system = '' %}
{%- else %}
{{- ' ' ~ message.content ~ eos_token }}
{%- endif %}
{%- endfor %})";

constexpr std::string_view kPhi3 = R"({%- for message in messages %}
{{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})";

constexpr std::string_view kZephyr = R"({%- for message in messages %}
{{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ eos_token ~ '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})";

// There is no system turn: the system message comes before the next message, with a blank line.
constexpr std::string_view kGemma = R"({{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- set ns.system = message.content | trim ~ '\n\n' %}
{%- else %}
{{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\n' }}
{{- ns.system ~ message.content | trim ~ '<end_of_turn>\n' }}
{%- set ns.system = '' %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})";

constexpr std::string_view kPlain = R"({%- for message in messages %}
{{- message.content }}
{%- if add_generation_prompt or not loop.last %}{{ '\n\n' }}{% endif %}
{%- endfor %})";

constexpr BuiltinTemplate kTemplates[] = {
    {"chatml", kChatml}, {"llama2", kLlama2}, {"llama3", kLlama3}, {"mistral", kMistral},
    {"phi3", kPhi3},     {"zephyr", kZephyr}, {"gemma", kGemma},   {"plain", kPlain},
};

}  // namespace

std::span<const BuiltinTemplate> builtin_templates() {
  return kTemplates;
}

}  // namespace qsf
