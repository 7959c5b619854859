#include "cli/output/progress.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "cli/output/memory_reading.h"
#include "cli/output/terminal.h"

namespace kvtide {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlain = std::chrono::seconds(3);
constexpr double kPlainShare = 0.05;
constexpr std::size_t kLongestBar = 20, kShortestBar = 6;

std::string bar(double share, std::size_t width) {
  const auto filled = std::min(width, static_cast<std::size_t>(share * static_cast<double>(width)));
  return cat(" [", std::string(filled, '#'), std::string(width - filled, '.'), "]");
}

// An estimate has no tenths: "12 s", "3:05 min", "1:20 h".
std::string left_text(std::optional<double> seconds) {
  constexpr std::int64_t kMinute = 60, kHour = 3600;
  if (!seconds || !(*seconds >= 0.0) || *seconds > 1e9) return "? left";
  const auto whole = static_cast<std::int64_t>(*seconds + 0.5);
  const auto two = [](std::int64_t value) { return cat(value < 10 ? "0" : "", value); };
  if (whole < 2 * kMinute) return cat(whole, " s left");
  if (whole < kHour) return cat(whole / kMinute, ":", two(whole % kMinute), " min left");
  return cat(whole / kHour, ":", two(whole % kHour / kMinute), " h left");
}

}  // namespace

Progress::Progress(std::string label)
    : label_(std::move(label)), session_(nullptr), redraws_(can_redraw()), start_(Clock::now()) {
  next_ = start_ + (redraws_ ? Clock::duration(kRedraw) : Clock::duration(kPlain));
}

Progress::Progress(std::string label, const Session& session) : Progress(std::move(label)) {
  session_ = &session;
  estimate_.emplace(session);
}

Progress::~Progress() {
  if (drawn_) redraw("");
}

bool Progress::due(double share) {
  const auto now = Clock::now();
  if (now < next_ || (!redraws_ && share < next_share_)) return false;
  next_share_ = share + kPlainShare;
  next_ = now + (redraws_ ? Clock::duration(kRedraw) : Clock::duration(kPlain));
  return true;
}

double Progress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Progress::show(std::string line, double share) {
  if (!redraws_) return say(line);
  constexpr std::size_t kFrame = 4;  // a space, two brackets, and the last column stays free
  const std::size_t width = terminal_width();
  if (width >= line.size() + kFrame + kShortestBar)
    line += bar(share, std::min(kLongestBar, width - line.size() - kFrame));
  redraw(line);
  drawn_ = true;
}

void Progress::update(double share) {
  if (!due(share)) return;
  std::optional<double> left;
  if (share > 0.0) left = seconds() * (1.0 - share) / share;
  show(cat(label_, " ", static_cast<std::int64_t>(share * 100.0), "%, ", left_text(left)), share);
}

void Progress::update(std::int64_t done, std::int64_t total, std::string_view more) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0;
  if (!due(share)) return;
  const double rate = static_cast<double>(done) / seconds();
  std::string line = cat(label_, " ", static_cast<std::int64_t>(share * 100.0), "%, ",
                         left_text(estimate_->left(done, total, seconds())), ", ", count_text(done), "/",
                         count_text(total), " tokens");
  if (!redraws_) line += cat(", ", number_text(rate, rate < 100.0 ? 1 : 0), " tok/s");
  line += cat(", KV ", bytes_text(session_->memory().kv));
  if (!redraws_) line += cat(", RSS ", bytes_text(quick_rss()));
  show(cat(line, more.empty() ? "" : ", ", more), share);
}

}  // namespace kvtide
