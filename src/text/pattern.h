// pattern.h: a regular expression that a tokenizer.json brings along. The one place that knows PCRE2.
//
// Ownership: owns the compiled expression; a Search refers to it and to its text.
// Thread rules: const members from any thread; a Search belongs to one.
// Limits: a match may take kLeastSteps steps, and kStepsPerByte more for every byte of the text. Beyond that
// it is an Error, so that no file can make it endless.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvtide {

class Pattern {
 public:
  static constexpr std::size_t kLeastSteps = 1'000'000, kStepsPerByte = 16;

  // Throws Error(unsupported) with what the library says and where.
  explicit Pattern(const std::string& expression);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  class Search {
   public:
    ~Search();
    Search(Search&&) noexcept;
    // First and last byte of the first match that begins at `at` or later; nullopt: there is none. Throws
    // Error(unsupported) when the limit is met.
    std::optional<std::pair<std::size_t, std::size_t>> next(std::size_t at);

   private:
    friend class Pattern;
    struct Impl;
    explicit Search(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
  };
  // `text` has to be valid UTF-8.
  Search search(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvtide
