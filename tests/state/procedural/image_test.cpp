// Images of procedural states that contradict their spec or themselves are refused; those that do not can go
// on.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "kvtide/error.h"
#include "tests/state/procedural/procedural_state.h"

namespace kvtide {
namespace {

using testing::feed;
using testing::procedural_spec;

// 17 blocks were sealed: two levels, full heads thinned, distances squeezed.
StateImage sound_image(const KvSpec& spec = procedural_spec(), std::int64_t tokens = 600) {
  ThreadPool pool(1);
  KvState state(spec);
  feed(state, pool, tokens);
  return state.image();
}

struct Wrong {
  const char* what;
  std::function<void(StateImage&)> change;
  const char* told;  // a part of the message
};

TEST(ProceduralImage, OfASoundStateIsAcceptedAndComesBackTheSame) {
  const StateImage image = sound_image();
  ASSERT_GE(image.past->blocks.size(), 6u);
  ASSERT_EQ(image.past->blocks.front().level, 2);
  ASSERT_GE(image.past->full.size(), 4u);
  ASSERT_FALSE(image.past->retained.empty());
  const StateImage again = KvState(image).image();
  EXPECT_EQ(again.past->sealed, image.past->sealed);
  EXPECT_EQ(again.past->blocks, image.past->blocks);
  EXPECT_EQ(again.past->full, image.past->full);
  EXPECT_EQ(again.past->rows, image.past->rows);
  EXPECT_EQ(again.past->retained, image.past->retained);
  EXPECT_EQ(again.past->retain_stride, image.past->retain_stride);
  EXPECT_EQ(again.past->blocks_seen, image.past->blocks_seen);
  EXPECT_EQ(again.past->mass_errors, image.past->mass_errors);
}

TEST(ProceduralImage, ThatContradictsItselfIsRefused) {
  const StateImage sound = sound_image();
  const std::vector<Wrong> list = {
      {"no memory", [](StateImage& i) { i.past.reset(); }, "come together"},
      {"a memory of another kind of state", [](StateImage& i) { i.spec.procedural.reset(); },
       "come together"},
      {"sealed off a block", [](StateImage& i) { i.past->sealed -= 1; }, "do not belong"},
      {"sealed below zero", [](StateImage& i) { i.past->sealed = -32; }, "do not belong"},
      {"a block too few sealed", [](StateImage& i) { i.past->sealed -= 32; }, "do not belong"},
      {"a block too many sealed", [](StateImage& i) { i.past->sealed += 32; }, "do not belong"},
      {"an older position", [](StateImage& i) { i.position = 400; }, "400"},
      {"blocks that overlap", [](StateImage& i) { i.past->blocks[1].first -= 1; }, "overlaps"},
      {"an empty block", [](StateImage& i) { i.past->blocks[1].last = i.past->blocks[1].first; }, "overlaps"},
      {"a block of the window", [](StateImage& i) { i.past->blocks.back().last += 1; }, "is not sealed"},
      {"a block before the text", [](StateImage& i) { i.past->blocks[0].first = -5; }, "overlaps"},
      {"a level that there is not", [](StateImage& i) { i.past->blocks[0].level = 3; }, "level 3"},
      {"level 0", [](StateImage& i) { i.past->blocks.back().level = 0; }, "level 0"},
      {"a block that reaches farther than it is long", [](StateImage& i) { i.past->blocks[0].reach += 400; },
       "cannot reach"},
      {"a block that reaches forward", [](StateImage& i) { i.past->blocks[0].reach = -1; }, "cannot reach"},
      {"more blocks than would stay",
       [](StateImage& i) {
         while (i.past->blocks.size() < 14) i.past->blocks.push_back(i.past->blocks.back());
         Pos first = 3;
         for (auto& block : i.past->blocks) {
           block.first = first;
           block.reach = 0;
           block.last = ++first;
         }
       },
       "would have merged"},
      {"full blocks out of order", [](StateImage& i) { std::swap(i.past->full[0], i.past->full[1]); },
       "out of order"},
      {"a full block in the window", [](StateImage& i) { i.past->full.back() = i.past->sealed; },
       "out of order"},
      {"a full block twice", [](StateImage& i) { i.past->full[1] = i.past->full[0]; }, "out of order"},
      {"a layer too few", [](StateImage& i) { i.past->rows.pop_back(); }, "layers"},
      {"a head too many", [](StateImage& i) { i.past->rows[0].push_back({}); }, "heads"},
      {"rows of a layer with a window", [](StateImage& i) { i.past->rows[1].push_back({}); }, "heads"},
      {"a block without rows", [](StateImage& i) { i.past->rows[0][0].pop_back(); }, "blocks of"},
      {"more rows than a head keeps", [](StateImage& i) { i.past->rows[0][0][0] = 9; }, "9 rows"},
      {"more rows than a block has", [](StateImage& i) { i.past->rows[0][1][0] = 33; }, "33 rows"},
      {"fewer than no rows", [](StateImage& i) { i.past->rows[2][0][0] = -1; }, "-1 rows"},
      {"more rows than a full head may keep",
       [](StateImage& i) {
         for (std::int64_t& rows : i.past->rows[0][1]) rows = 32;
       },
       "of 128"},
      {"a full block without rows", [](StateImage& i) { i.past->rows[0][1].pop_back(); }, "blocks of"},
      {"a stride of nothing", [](StateImage& i) { i.past->retain_stride = 0; }, "strides"},
      {"blocks seen below zero", [](StateImage& i) { i.past->blocks_seen = -1; }, "strides"},
      {"references out of order", [](StateImage& i) { std::swap(i.past->retained[0], i.past->retained[1]); },
       "out of order"},
      {"references of the future", [](StateImage& i) { i.past->retained.back() = i.position; },
       "out of order"},
      {"more references than fit",
       [](StateImage& i) {
         i.past->retained.clear();
         for (Pos p = 0; p < 49; ++p) i.past->retained.push_back(p);
       },
       "49 references"},
      {"rows of the window that are missing", [](StateImage& i) { i.runs[0].pop_back(); }, "lacks rows"},
      {"sinks that are missing", [](StateImage& i) { i.runs[2].erase(i.runs[2].begin()); }, "lacks rows"},
  };
  for (const Wrong& wrong : list) {
    StateImage image = sound;
    wrong.change(image);
    try {
      const KvState state(image);
      ADD_FAILURE() << wrong.what << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << wrong.what;
      EXPECT_NE(error.message().find(wrong.told), std::string::npos) << wrong.what << ": " << error.message();
    }
  }
}

TEST(ProceduralImage, FullHeadsThatWereThinnedApartAreRefused) {
  // They are thinned together, by the rows of the first.
  KvSpec spec = procedural_spec();
  spec.procedural->plans[2][1].full = true;
  StateImage image = sound_image(spec);
  EXPECT_EQ(image.past->rows[0][1], image.past->rows[2][1]);
  image.past->rows[2][1][0] = 0;
  EXPECT_THROW(KvState{image}, Error);
}

TEST(ProceduralImage, BlocksOfFullHeadsWithoutAFullHeadAreRefused) {
  KvSpec spec = procedural_spec();
  spec.procedural->plans[0][1] = {false, false, 8, 1.0f};
  StateImage image = sound_image(spec);
  EXPECT_TRUE(image.past->full.empty());
  image.past->full = {3};
  EXPECT_THROW(KvState{image}, Error);
}

TEST(ProceduralImage, WithBlocksOfWhichNothingIsLeftGoesOn) {
  ThreadPool pool(1);
  StateImage image = sound_image();
  for (auto& layer : image.past->rows)
    for (auto& head : layer) std::fill(head.begin(), head.end(), 0);
  const Pos sinks = image.spec.procedural->sinks;
  for (auto& layer : image.past->lost)
    std::fill(layer.begin(), layer.end(), static_cast<double>(image.past->sealed - sinks));
  KvState state(image);
  feed(state, pool, 800);
  EXPECT_EQ(state.position(), 1400);
  EXPECT_GT(state.past()->counts().consolidations, image.past->counts.consolidations);
}

std::vector<std::string> tensor_names(const StateImage& image) {
  std::vector<std::string> names;
  for (const auto& tensor : procedural_tensors(memory_spec(image.spec), *image.past, testing::kFedDim))
    names.push_back(tensor.name);
  return names;
}

void copy_rows(const ConstRowSpan& from, const RowSpan& to) {
  ASSERT_EQ(from.bytes(), to.bytes());
  for (std::int64_t r = 0; r < from.rows; ++r) std::ranges::copy(from.row(r), to.row(r).begin());
}

void copy_bytes(std::span<const std::byte> from, std::span<std::byte> to) {
  ASSERT_EQ(from.size(), to.size());
  std::copy(from.begin(), from.end(), to.begin());
}

// What a snapshot fills in after the image: rows, and the tensors of `from` that `to` has too.
void copy_contents(const KvState& from, KvState& to) {
  const StateImage image = to.image();
  for (int layer = 0; layer < static_cast<int>(image.runs.size()); ++layer)
    for (const PosRange& run : image.runs[layer])
      for (int head = 0; head < image.spec.layers[layer].kv_heads; ++head) {
        for (const KvPart part : {KvPart::keys, KvPart::values})
          copy_rows(from.rows_of_head(layer, head, part, run), to.rows_of_head(layer, head, part, run));
      }
  const auto names = tensor_names(from.image());
  const auto wanted = tensor_names(image);
  const auto source = std::as_const(*from.past()).payload();
  const auto target = to.past()->payload();
  ASSERT_EQ(source.size(), names.size());
  ASSERT_EQ(target.size(), wanted.size());
  for (std::size_t i = 0; i < target.size(); ++i) {
    const auto at = std::find(names.begin(), names.end(), wanted[i]) - names.begin();
    ASSERT_LT(at, std::ssize(names)) << wanted[i];
    copy_bytes(source[at], target[i]);
  }
}

// Keys in four bits lie less a mean, but for those of snapshots from before that: these go on as they are.
TEST(ProceduralImage, WithoutMeanKeysGoesOnWithoutThem) {
  ThreadPool pool(1);
  KvState sound(testing::four_bit_spec());
  feed(sound, pool, 600);
  StateImage image = sound.image();
  const auto means = [](const StateImage& of) {
    const auto names = tensor_names(of);
    return std::count_if(names.begin(), names.end(),
                         [](const std::string& name) { return name.ends_with(".mean"); });
  };
  EXPECT_TRUE(image.past->mean_keys);
  EXPECT_EQ(means(image), 1);
  for (const bool with : {true, false}) {
    image.past->mean_keys = with;
    KvState state(image);
    copy_contents(sound, state);
    feed(state, pool, 100);
    EXPECT_EQ(state.image().past->mean_keys, with);
    EXPECT_EQ(means(state.image()), with);
  }
  KvState state(image);
  state.clear();
  feed(state, pool, 100);
  EXPECT_TRUE(state.image().past->mean_keys) << "what is read from the beginning has them again";
}

TEST(ProceduralImage, PayloadsWithNumbersThatCannotBeAreRefused) {
  const StateImage image = sound_image(testing::four_bit_spec());
  const auto tensors = procedural_tensors(memory_spec(image.spec), *image.past, testing::kFedDim);
  const float nan = std::nanf("");
  const std::int32_t outside = 32 * 18;
  int tried = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool position = tensors[i].name.ends_with(".position");
    if (!position && tensors[i].type != ProceduralTensor::Type::f32) continue;
    KvState state(image);
    state.past()->check_payload();
    std::byte* last = &state.past()->payload()[i].back() - 3;
    std::memcpy(last, position ? static_cast<const void*>(&outside) : &nan, 4);
    EXPECT_THROW(state.past()->check_payload(), Error) << tensors[i].name;
    ++tried;
  }
  EXPECT_GE(tried, 3 * 4 + 2 + 1 + 1)
      << "notes of three plain heads, of a full one, its mean key, log masses";
  KvState state(image);
  auto queries = state.past()->payload()[tensors.size() - 2];
  queries[1] = std::byte{0x7c};  // of a scale, which is a half: an exponent of all ones
  EXPECT_THROW(state.past()->check_payload(), Error);
}

}  // namespace
}  // namespace kvtide
