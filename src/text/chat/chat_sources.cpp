#include "text/chat/chat_sources.h"

#include <algorithm>
#include <iterator>

namespace kvtide {
namespace {

constexpr std::string_view kChatNames[] = {"chatml", "llama-3", "gemma", "mistral-instruct"};

constexpr std::string_view kChatml =
    "{%- for m in messages -%}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

constexpr std::string_view kLlama3 =
    "{%- for m in messages -%}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{%- endif -%}";

constexpr std::string_view kGemma =
    "{%- set system = messages and messages[0].role == 'system' -%}"
    "{%- for m in (messages[1:] if system else messages) -%}"
    "{%- if m.role != ('user' if loop.index0 % 2 == 0 else 'assistant') -%}"
    "{{ raise_exception('messages of user and assistant must take turns, behind one of system at most') }}"
    "{%- endif -%}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' }}"
    "{%- if loop.first and system -%}{{ messages[0].content + '\\n\\n' }}{%- endif -%}"
    "{{ m.content | trim + '<end_of_turn>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}";

constexpr std::string_view kMistral =
    "{%- set system = messages and messages[0].role == 'system' -%}"
    "{%- for m in (messages[1:] if system else messages) -%}"
    "{%- if m.role != ('user' if loop.index0 % 2 == 0 else 'assistant') -%}"
    "{{ raise_exception('messages of user and assistant must take turns, behind one of system at most') }}"
    "{%- endif -%}"
    "{%- if m.role == 'user' -%}"
    "{{ '[INST] ' + (messages[0].content + '\\n\\n' if loop.first and system else '') + m.content + ' "
    "[/INST]' }}"
    "{%- else -%}"
    "{{ m.content + '</s>' }}"
    "{%- endif -%}"
    "{%- endfor -%}";

constexpr std::string_view kChatSources[] = {kChatml, kLlama3, kGemma, kMistral};  // by kChatNames

}  // namespace

std::span<const std::string_view> chat_source_names() { return kChatNames; }

std::string_view chat_source(std::string_view name) {
  const auto* found = std::find(std::begin(kChatNames), std::end(kChatNames), name);
  return found == std::end(kChatNames) ? std::string_view() : kChatSources[found - std::begin(kChatNames)];
}

}  // namespace kvtide
