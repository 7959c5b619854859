#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::uint32_t kMostHeapKib = 64 * 1024;

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Impl {
  std::string expression;
  std::unique_ptr<pcre2_code, Free> code;
};

struct Pattern::Search::Impl {
  const Pattern::Impl& pattern;
  std::string_view text;
  std::unique_ptr<pcre2_match_data, Free> data;
  std::unique_ptr<pcre2_match_context, Free> context;
};

Pattern::Pattern(const std::string& expression) : impl_(std::make_unique<Impl>()) {
  impl_->expression = expression;
  int error = 0;
  PCRE2_SIZE at = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr));
  if (!impl_->code)
    throw Error(error == PCRE2_ERROR_HEAP_FAILED ? ErrorCode::out_of_memory : ErrorCode::unsupported,
                cat("vocabulary: the regular expression ", quoted(expression, 200),
                    " cannot be used: ", message_of(error), " at byte ", at));
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Pattern::Search::Search(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pattern::Search::~Search() = default;
Pattern::Search::Search(Search&&) noexcept = default;

Pattern::Search Pattern::search(std::string_view text) const {
  auto made = std::make_unique<Search::Impl>(Search::Impl{*impl_, text, nullptr, nullptr});
  made->data.reset(pcre2_match_data_create_from_pattern(impl_->code.get(), nullptr));
  made->context.reset(pcre2_match_context_create(nullptr));
  if (!made->data || !made->context)
    throw Error(ErrorCode::out_of_memory, "no memory for a regular expression");
  const std::size_t steps = std::min<std::size_t>(kLeastSteps + kStepsPerByte * text.size(), 0xffffffff);
  pcre2_set_match_limit(made->context.get(), static_cast<std::uint32_t>(steps));
  pcre2_set_heap_limit(made->context.get(), kMostHeapKib);
  return Search(std::move(made));
}

std::optional<std::pair<std::size_t, std::size_t>> Pattern::Search::next(std::size_t at) {
  const int found =
      pcre2_match(impl_->pattern.code.get(), reinterpret_cast<PCRE2_SPTR>(impl_->text.data()),
                  impl_->text.size(), at, PCRE2_NO_UTF_CHECK, impl_->data.get(), impl_->context.get());
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0)
    throw Error(found == PCRE2_ERROR_NOMEMORY ? ErrorCode::out_of_memory : ErrorCode::unsupported,
                cat("vocabulary: the regular expression ", quoted(impl_->pattern.expression, 200),
                    " cannot be followed through this text: ", message_of(found)));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(impl_->data.get());
  // \K may put the start behind the end: then nothing was matched.
  return std::pair<std::size_t, std::size_t>(std::min(ends[0], ends[1]), ends[1]);
}

}  // namespace kvtide
