#include "cli/output/progress.h"

#include <utility>

#include "base/text.h"
#include "cli/output/memory_reading.h"
#include "cli/output/terminal.h"

namespace kvtide {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlain = std::chrono::seconds(3);
constexpr std::int64_t kBar = 20;

std::string bar(std::int64_t done, std::int64_t total) {
  const std::int64_t filled = total > 0 ? done * kBar / total : 0;
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(kBar - filled), '.') + "] ";
}

}  // namespace

Progress::Progress(std::string label)
    : label_(std::move(label)), session_(nullptr), redraws_(can_redraw()), start_(Clock::now()) {
  next_ = start_ + (redraws_ ? Clock::duration(kRedraw) : Clock::duration(kPlain));
}

Progress::Progress(std::string label, const Session& session) : Progress(std::move(label)) {
  session_ = &session;
}

Progress::~Progress() {
  if (drawn_) redraw("");
}

bool Progress::due() {
  const auto now = Clock::now();
  if (now < next_) return false;
  next_ = now + (redraws_ ? Clock::duration(kRedraw) : Clock::duration(kPlain));
  return true;
}

void Progress::show(const std::string& line) {
  if (!redraws_) return say(line);
  redraw(line);
  drawn_ = true;
}

void Progress::update(double share) {
  if (!due()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const auto thousandths = static_cast<std::int64_t>(share * 1000.0);
  show(cat(label_, " ", redraws_ ? bar(thousandths, 1000) : "", thousandths / 10, "%, ",
           share > 0.0 ? time_text(seconds * (1.0 - share) / share) : "?", " left"));
}

void Progress::update(std::int64_t done, std::int64_t total, std::string_view more) {
  if (!due()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = static_cast<double>(done) / seconds;
  show(cat(label_, " ", redraws_ ? bar(done, total) : "", count_text(done), "/", count_text(total),
           " tokens, ", number_text(rate, rate < 100.0 ? 1 : 0), " tok/s, ", more, more.empty() ? "" : ", ",
           "KV ", bytes_text(session_->memory().kv), ", RSS ", bytes_text(quick_rss()), ", ",
           done > 0 ? time_text(static_cast<double>(total - done) / rate) : "?", " left"));
}

}  // namespace kvtide
