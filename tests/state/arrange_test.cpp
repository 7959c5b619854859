// The rules of arrange.h against the definitions behind them, for every small size.
#include "state/arrange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace kvtide {
namespace {

using Window = std::optional<std::int64_t>;

KvSpec spec_with(std::optional<Rolling> rolling, std::int64_t slack = 0) {
  KvSpec spec;
  spec.rolling = rolling;
  spec.slack = slack;
  return spec;
}

LayerSpec layer_with(Window window) { return {1, 8, window}; }

// Whether a query at `reader` may see what is seen at `place`, from the words of the contract: it sees the
// newest `window` positions, its own included.
bool in_window(Pos place, Pos reader, Window window) {
  if (place > reader) return false;
  if (!window) return true;
  std::int64_t newer = 0;  // positions in (place, reader]
  for (Pos p = reader; p > place; --p) ++newer;
  return newer < *window;
}

TEST(Arrange, VisibilityIsTheNarrowestOfTheWindowsThatApply) {
  const std::vector<Window> sizes{std::nullopt, 1, 2, 3, 7};
  for (const Window layer_window : sizes)
    for (const Window attention : sizes)
      for (const Window rolling_window : sizes)
        for (std::int64_t sinks = 0; sinks <= (rolling_window ? 3 : 0); ++sinks) {
          std::optional<Rolling> rolling;
          if (rolling_window) rolling = Rolling{sinks, *rolling_window};
          const Visibility got = visibility(spec_with(rolling), layer_with(layer_window), attention);
          // A layer with a window of its own has no sinks and takes no part in rolling.
          const bool rolls = rolling && !layer_window;
          EXPECT_EQ(got.sinks, rolls ? sinks : 0);
          for (Pos reader = 0; reader < 20; ++reader)
            for (Pos place = 0; place <= reader; ++place) {
              const bool seen = in_window(place, reader, layer_window) &&
                                in_window(place, reader, attention) &&
                                (!rolls || in_window(place, reader, rolling_window));
              ASSERT_EQ(in_window(place, reader, got.window), seen) << place << " from " << reader;
            }
        }
}

TEST(Arrange, SinksAreSeenAsIfTheWindowFollowedThemAtOnce) {
  for (std::int64_t window = 1; window < 6; ++window)
    for (std::int64_t sinks = 1; sinks < 5; ++sinks)
      for (std::int64_t attention = 1; attention < 8; ++attention) {
        const Visibility got = visibility(spec_with(Rolling{sinks, window}), layer_with({}), attention);
        // Written without a gap: the sinks, then the positions of the window, of which the reader is the
        // last.
        const Pos reader = sinks + std::min(window, attention) - 1;
        EXPECT_EQ(got.sink_reader, reader);
        EXPECT_FALSE(in_window(sinks - 1, reader, got.window)) << "the last sink is right outside";
        EXPECT_TRUE(in_window(sinks, reader, got.window));
      }
  EXPECT_EQ(visibility(spec_with(Rolling{0, 5}), layer_with({}), {}).sink_reader, std::nullopt);
  EXPECT_EQ(visibility(spec_with(Rolling{3, 5}), layer_with(4), {}).sink_reader, std::nullopt);
}

TEST(Arrange, TheOldestNeededIsTheOldestThatAnyLaterQueryCanSee) {
  for (const Window layer_window : {Window{}, Window{1}, Window{2}, Window{5}})
    for (const Window rolling_window : {Window{}, Window{1}, Window{3}, Window{8}})
      for (std::int64_t slack = 0; slack <= 4; ++slack)
        for (Pos end = 0; end <= 20; ++end) {
          const Window window = layer_window ? layer_window : rolling_window;
          Pos oldest = end;
          for (Pos reader = std::max<Pos>(0, end - slack); reader <= end; ++reader)
            for (Pos place = reader; place >= 0; --place)
              if (in_window(place, reader, window)) oldest = std::min(oldest, place);
          std::optional<Rolling> rolling;
          if (rolling_window) rolling = Rolling{2, *rolling_window};
          EXPECT_EQ(oldest_needed(spec_with(rolling, slack), layer_with(layer_window), end), oldest)
              << "window " << window.value_or(-1) << " slack " << slack << " end " << end;
        }
}

// All ways to hold positions below `end`: every subset of them as runs, each run moved by as much as lies
// behind it and was taken out, or not moved at all.
std::vector<std::vector<Segment>> all_segments(Pos end) {
  std::vector<std::vector<Segment>> all;
  for (unsigned held = 0; held < (1u << end); ++held)
    for (const bool closed : {false, true}) {
      std::vector<Segment> segments;
      std::int64_t gone = 0;
      for (Pos p = end; p-- > 0;) {
        if ((held >> p & 1u) == 0) {
          ++gone;
          continue;
        }
        if (p + 1 < end && (held >> (p + 1) & 1u) != 0)
          --segments.back().first;
        else
          segments.push_back({p, p + 1, closed ? gone : 0});
      }
      std::reverse(segments.begin(), segments.end());
      all.push_back(std::move(segments));
    }
  return all;
}

TEST(Arrange, VisibleRunsAreExactlyTheHeldPositionsThatSomeLaterQuerySees) {
  constexpr Pos kEnd = 8;
  for (const auto& segments : all_segments(kEnd))
    for (const Window window : {Window{}, Window{1}, Window{2}, Window{4}, Window{20}})
      for (const std::int64_t sinks : {0, 1, 3, 9})
        for (const Pos reader : {Pos{0}, Pos{5}, kEnd, kEnd + 3}) {
          const Visibility visible{window, sinks, std::nullopt};
          std::vector<VisibleRun> wanted;
          for (const bool sink : {true, false})
            for (const Segment& segment : segments) {
              bool open = false;
              for (Pos p = segment.first; p < segment.last; ++p) {
                // Seen by the query at `reader` or, being newer than it, by a later one.
                const Pos place = p + segment.shift;
                const bool seen =
                    sink ? p < sinks : p >= sinks && (place > reader || in_window(place, reader, window));
                if (seen && open) ++wanted.back().rows.last;
                if (seen && !open) wanted.push_back({{p, p + 1, segment.shift}, sink});
                open = seen;
              }
            }
          ASSERT_EQ(visible_runs(segments, visible, reader), wanted)
              << "window " << window.value_or(-1) << " sinks " << sinks << " reader " << reader;
        }
}

TEST(Arrange, NothingHeldIsNothingSeen) {
  EXPECT_TRUE(visible_runs({}, {}, 10).empty());
  EXPECT_TRUE(visible_runs({{3, 7, 0}}, {2, 0, std::nullopt}, 20).empty()) << "the window has left it behind";
}

}  // namespace
}  // namespace kvtide
