// template.h: the template language of chats: a part of Jinja, in the environment in which transformers renders.
//
//   const Template chat(source);
//   const MarkedText text = chat.render(variables);
//
// It is a sandbox without a way out: a template sees its variables and the functions of functions.h, changes nothing
// but its own names, and takes a bounded amount of time, memory and stack.
// Ownership: owns its tree. Thread rules: const from any thread; each rendering belongs to one.
#pragma once

#include <ctime>
#include <optional>
#include <string_view>

#include "text/jinja/limits.h"
#include "text/jinja/syntax.h"

namespace kvtide::jinja {

class Template {
 public:
  // Throws Error(bad_format) that names the line of what is no template, Error(unsupported) for filters and tags that
  // there are not, Error(bad_text) for what is not UTF-8.
  explicit Template(std::string_view source);

  // Throws Error(invalid_argument) that names the line: what the template itself raises, values that do not fit, too
  // much work. `now`: what strftime_now tells; without it that function is refused.
  MarkedText render(const Mapping& variables, const std::optional<std::tm>& now = std::nullopt,
                    const RenderLimits& limits = {}) const;

 private:
  Body body_;
};

}  // namespace kvtide::jinja
