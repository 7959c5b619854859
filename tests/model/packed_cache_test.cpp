// Packed weights in a cache folder: when a file is used, when it is made anew, and that nothing of it is an error.
#include "model/packed_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "kvtide/error.h"
#include "model/packed_binding.h"
#include "tests/base/faulty_files.h"
#include "tests/base/killing_files.h"
#include "tests/base/time_limit.h"
#include "tests/model/packed_case.h"

namespace kvtide {
namespace {

using testing::PackedCase;
using testing::PackedLoad;

void change(const std::string& path, std::int64_t at, char by = 1) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const bool from_end = at < 0;
  file.seekg(at, from_end ? std::ios::end : std::ios::beg);
  const char byte = static_cast<char>(file.get() ^ by);
  file.seekp(at, from_end ? std::ios::end : std::ios::beg);
  file.put(byte);
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PackedCache, TheFirstLoadMakesAFile_TheSecondMapsIt) {
  const PackedCase c;
  const PackedLoad first = c.load();
  ASSERT_TRUE(first.weights);
  EXPECT_TRUE(first.use.made);
  EXPECT_EQ(first.notes(), "");
  EXPECT_EQ(c.kept(".packed").size(), 1u);
  EXPECT_EQ(first.use.file, c.options.folder + "/" + c.kept(".packed")[0]);
  EXPECT_TRUE(c.kept(".packed")[0].starts_with("sample.gguf-")) << c.kept(".packed")[0];
  EXPECT_EQ(first.use.bytes, static_cast<std::int64_t>(std::filesystem::file_size(first.use.file)));

  const PackedLoad second = c.load();
  ASSERT_TRUE(second.weights);
  EXPECT_FALSE(second.use.made);
  EXPECT_EQ(second.use.file, first.use.file);
  EXPECT_EQ(second.weights->packed_bytes(), 0) << "private memory";
  EXPECT_GT(second.weights->shared_bytes(), 0);
  EXPECT_EQ(second.weights->mapped_bytes(), 0);
  EXPECT_EQ(c.kept().size(), 2u) << "the file, and a note that it was looked at";
}

TEST(PackedCache, WithoutAFolder_OrForASmallModel_NothingIsKept) {
  PackedCase c;
  c.options.smallest = 1 << 30;
  EXPECT_FALSE(c.load().weights);
  c.options.smallest = 0;
  c.options.folder = "";
  const PackedLoad none = c.load();
  EXPECT_FALSE(none.weights);
  EXPECT_EQ(none.notes(), "");
  EXPECT_EQ(std::filesystem::exists(c.folder.path("cache")), false);
}

TEST(PackedCache, AModelThatWasWrittenSince_IsPackedAnew) {
  PackedCase c;
  const PackedLoad first = c.load();
  // Other numbers at the same length, the time set back: the blocks tell.
  const auto time = std::filesystem::last_write_time(c.model.path());
  change(c.model.path(), -5);
  std::filesystem::last_write_time(c.model.path(), time);
  const PackedLoad other = c.load();
  EXPECT_TRUE(other.use.made);
  EXPECT_EQ(other.notes(), first.use.file + " is made anew: it belongs to other weights\n");
  // The same numbers, written again.
  std::filesystem::last_write_time(c.model.path(), time + std::chrono::seconds(5));
  const PackedLoad again = c.load();
  EXPECT_TRUE(again.use.made);
  EXPECT_EQ(again.notes(), first.use.file + " is made anew: the model was written since\n");
  EXPECT_EQ(c.load().notes(), "");
  EXPECT_EQ(c.kept(".packed").size(), 1u);
}

// The same matrices, bound to something else.
TEST(PackedCache, AFileForAnotherProgramOrLayoutOrKernels_IsMadeAnew) {
  const PackedCase c;
  const PackedLoad first = c.load();
  const auto ours = packed_binding(*first.checkpoint);
  struct Change {
    const char* says;
    PackedBinding binding;
  };
  std::vector<Change> changes(4, {"", ours});
  changes[0].binding.program = "0.0.9";
  changes[0].says = "version '0.0.9' packed it";
  changes[1].binding.layout += 1;
  changes[1].says = "it was packed in layout ";
  changes[2].binding.kernels = "avx1024";
  changes[2].says = "for 'avx1024' kernels";
  changes[3].binding.model[0] ^= 1;
  changes[3].says = "it belongs to other weights";
  const std::string good = bytes_of(first.use.file);
  for (const Change& change : changes) {
    PosixFiles files;
    save_file_in_parts(files, first.use.file, [&](const FileSink& sink) {
      PackedWriter writer(sink, change.binding);
      ThreadPool pool(1);
      Weights::pack(*first.checkpoint, pool, writer);
    });
    const PackedLoad next = c.load();
    EXPECT_TRUE(next.use.made);
    EXPECT_NE(next.notes().find(change.says), std::string::npos) << next.notes();
    EXPECT_EQ(bytes_of(next.use.file), good);
  }
}

TEST(PackedCache, AFileWithOtherMatrices_IsMadeAnew) {
  PackedCase c;
  const PackedLoad first = c.load();
  const PackedCase larger({.layers = 3, .types = {DType::q8_0}}), other({.types = {DType::q4_0}});
  for (const PackedCase* from : {&larger, &other}) {
    const PackedLoad strange = from->load();
    PosixFiles files;
    save_file_in_parts(files, first.use.file, [&](const FileSink& sink) {
      PackedWriter writer(sink, packed_binding(*first.checkpoint));
      ThreadPool pool(1);
      Weights::pack(*strange.checkpoint, pool, writer);
    });
    const PackedLoad next = c.load();
    EXPECT_TRUE(next.use.made);
    EXPECT_NE(next.notes().find("the packed matrices are others than the model's"), std::string::npos)
        << next.notes();
  }
}

TEST(PackedCache, WhatIsNoPackedFileAtAll_IsMadeAnew) {
  const PackedCase c;
  const PackedLoad first = c.load();
  const std::string good = bytes_of(first.use.file);
  for (const std::string& bytes :
       {std::string(), std::string("x"), good.substr(0, good.size() / 2), good.substr(0, good.size() - 1),
        std::string(good.size(), '\0'), good + "x", bytes_of(c.model.path())}) {
    std::ofstream(first.use.file, std::ios::binary) << bytes;
    const PackedLoad next = c.load();
    EXPECT_TRUE(next.use.made);
    EXPECT_TRUE(next.notes().starts_with(first.use.file + " is made anew: ")) << next.notes();
    EXPECT_EQ(next.use.notes.size(), 1u) << next.notes();
    EXPECT_EQ(bytes_of(first.use.file), good);
  }
}

// A few bytes of a matrix that changed on the disk: nobody reads 4 GB at every start to find them, but the first
// start after that of the machine does.
TEST(PackedCache, SumsAreComparedOnceAfterEveryStartOfTheMachine_AndWhenAsked) {
  PackedCase c;
  const PackedLoad first = c.load();
  const auto time = std::filesystem::last_write_time(first.use.file);
  const std::string good = bytes_of(first.use.file);
  const auto damage = [&] {
    change(first.use.file, 5000);
    std::filesystem::last_write_time(first.use.file, time);
  };
  damage();
  EXPECT_EQ(c.load().notes(), "") << "looked at since the machine was started";
  c.options.verify = true;
  EXPECT_NE(c.load().notes().find(
                "is made anew: not a sound file of packed weights: matrix 'token_embd.weight' is damaged"),
            std::string::npos);
  EXPECT_EQ(bytes_of(first.use.file), good);
  c.options.verify = false;
  std::filesystem::last_write_time(first.use.file, time);
  EXPECT_EQ(c.load().notes(), "");

  damage();
  c.boot = "the second start";
  EXPECT_NE(c.load().notes().find("is damaged"), std::string::npos);
  EXPECT_EQ(c.load().notes(), "");
  std::filesystem::last_write_time(first.use.file, time);
  EXPECT_EQ(c.load().notes(), "");
  c.boot = "the third start";
  EXPECT_EQ(c.load().notes(), "");
  damage();
  EXPECT_EQ(c.load().notes(), "");
  c.boot = "";  // nobody knows when the machine was started: every load looks
  EXPECT_NE(c.load().notes().find("is damaged"), std::string::npos);
  std::filesystem::last_write_time(first.use.file, time);
  damage();
  EXPECT_NE(c.load().notes().find("is damaged"), std::string::npos);
}

TEST(PackedCache, AFolderThatCannotBeWritten_IsNoError) {
  PackedCase c;
  std::ofstream(c.folder.path("a file")) << "x";
  c.options.folder = c.folder.path("a file");
  const PackedLoad load = c.load();
  EXPECT_FALSE(load.weights);
  EXPECT_EQ(load.use.notes.size(), 1u);
  EXPECT_TRUE(load.notes().starts_with("the packed weights are not kept: ")) << load.notes();
  if (::geteuid() == 0) return;  // root writes everywhere
  c.options.folder = c.folder.path("locked");
  std::filesystem::create_directory(c.options.folder);
  ::chmod(c.options.folder.c_str(), 0500);
  EXPECT_TRUE(c.load().notes().starts_with("the packed weights are not kept: "));
  ::chmod(c.options.folder.c_str(), 0700);
}

// A file that lies in a folder that only others may write is used all the same.
TEST(PackedCache, AFileWithoutARightToNoteAnything_IsUsed_AndLookedAtEachTime) {
  PackedCase c;
  const PackedLoad first = c.load();
  for (const std::string& note : c.kept(".checked")) std::filesystem::remove(c.options.folder + "/" + note);
  PosixFiles real;
  testing::FaultyFiles read_only(real, {1, EROFS, true});
  const PackedLoad second = c.load(read_only);
  EXPECT_TRUE(second.weights);
  EXPECT_EQ(second.use.file, first.use.file);
  EXPECT_EQ(second.notes(), "");
  EXPECT_EQ(c.kept(".checked").size(), 0u);
}

TEST(PackedCache, ADiskThatIsFullAtAnyCall_CostsTheFileAndNothingElse) {
  for (const int error : {ENOSPC, EIO, EDQUOT})
    for (std::int64_t at = 1;; ++at) {
      const PackedCase c;
      PosixFiles real;
      testing::FaultyFiles files(real, {at, error, false});
      const PackedLoad load = c.load(files);
      ASSERT_LT(at, 1000);
      EXPECT_EQ(load.weights.has_value(), load.use.made);
      EXPECT_EQ(load.weights.has_value(), load.notes().empty()) << load.notes();
      EXPECT_EQ(c.kept(".packed").size(), load.weights ? 1u : 0u);
      for (const std::string& name : c.kept()) EXPECT_EQ(name.find(".tmp"), name.npos) << name;
      if (!files.happened()) break;
    }
}

TEST(PackedCache, AProcessThatIsKilledAtAnyCall_LeavesNothingBroken) {
  const testing::TimeLimit limit("children that are killed while they pack");
  const PackedCase c({.layers = 1, .types = {DType::q4_0}});
  constexpr std::int64_t kNever = std::int64_t{1} << 40, kEnd = 8, kStep = 9;
  testing::KillingFiles counting(kNever, false);
  c.load(counting);
  int left = 0, found = 0;
  for (const bool after : {false, true})
    // Every call of the beginning and of the end, and a few of the hundred writes between.
    for (std::int64_t at = 1; at <= counting.calls();
         at += at <= kEnd || at > counting.calls() - kEnd - kStep ? 1 : kStep) {
      std::filesystem::remove_all(c.options.folder);
      const pid_t child = ::fork();
      if (child == 0) {
        testing::KillingFiles files(at, after);
        c.load(files);
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFSIGNALED(status)) << at;
      const auto whole = static_cast<int>(c.kept(".packed").size());
      found += whole;
      left += static_cast<int>(c.kept().size() - c.kept(".checked").size()) - whole;
      const PackedLoad next = c.load();
      ASSERT_TRUE(next.weights);
      EXPECT_EQ(next.use.made, whole == 0);
      EXPECT_EQ(next.notes(), "");
      if (next.use.made) {
        EXPECT_EQ(c.kept().size(), 2u) << "what was left over is gone";
      }
    }
  EXPECT_GT(left, 16) << "kills should leave files that are half written";
  EXPECT_GT(found, 8);
}

TEST(PackedCache, ManyProcessesAtOnce_AllLoad_AndOneFileIsLeft) {
  const PackedCase c({.layers = 4, .types = {DType::q4_0}});
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int fine = 0;
      for (int round = 0; round < 5; ++round) {
        const PackedLoad load = c.load();
        fine += load.weights.has_value() && load.use.notes.empty();
      }
      ::_exit(fine == 5 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(c.kept(".packed").size(), 1u);
  for (const std::string& name : c.kept()) EXPECT_EQ(name.find(".tmp"), name.npos) << name;
  EXPECT_FALSE(c.load().use.made);
}

TEST(PackedCache, WhatWasUsedLongestAgo_GoesWhenTheFolderIsFull) {
  PackedCase c;
  const testing::TemporaryFile second = testing::sample_file({.types = {DType::q8_0}, .seed = 2}),
                               third = testing::sample_file({.types = {DType::q8_0}, .seed = 3});
  PosixFiles files;
  const std::string first_file = c.load().use.file, second_file = c.load(files, second.path()).use.file;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(first_file));
  const auto used_at = [](const std::string& file, std::time_t second_of_time) {
    const timespec times[2] = {{second_of_time, 0}, {0, UTIME_OMIT}};
    ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  };
  used_at(first_file, 1000);
  used_at(second_file, 2000);
  EXPECT_EQ(c.load().use.file, first_file);  // which makes it the newer one
  c.options.limit = 2 * size + size / 2;
  EXPECT_TRUE(c.load(files, third.path()).use.made);
  EXPECT_EQ(c.kept(".packed").size(), 2u);
  EXPECT_TRUE(std::filesystem::exists(first_file));
  EXPECT_FALSE(std::filesystem::exists(second_file));

  c.options.limit = size / 2;
  const PackedLoad none = c.load(files, second.path());
  EXPECT_FALSE(none.weights);
  EXPECT_NE(none.notes().find("the limit of the cache is "), std::string::npos) << none.notes();
  EXPECT_EQ(c.kept(".packed").size(), 2u) << "for a file that cannot fit nothing is removed";
}

TEST(PackedCache, NotesOfEarlierStartsGo) {
  PackedCase c;
  c.load();
  EXPECT_EQ(c.kept(".checked").size(), 1u);
  c.boot = "the second start";
  c.load();
  c.load();
  EXPECT_EQ(c.kept(".checked").size(), 1u) << "written over";
  const testing::TemporaryFile other = testing::sample_file({.types = {DType::q8_0}, .seed = 2});
  c.boot = "the third start";
  PosixFiles files;
  c.load(files, other.path());
  EXPECT_EQ(c.kept(".checked").size(), 1u);
}

TEST(PackedCache, AFileThatIsNamed_OrLiesBesideTheModel_ComesFirst) {
  PackedCase c;
  const std::string named = c.folder.path("named");
  const std::int64_t bytes = pack_model(c.model.path(), named);
  EXPECT_EQ(bytes, static_cast<std::int64_t>(std::filesystem::file_size(named)));
  c.options.file = named;
  PackedLoad load = c.load();
  EXPECT_EQ(load.use.file, named);
  EXPECT_FALSE(load.use.made);
  // A copy of the model has another time; who names a file knows that it is one.
  std::filesystem::last_write_time(c.model.path(), std::filesystem::file_time_type::clock::now());
  EXPECT_EQ(c.load().use.file, named);
  c.options.file = "";
  const std::string beside = c.model.path() + ".packed";
  std::filesystem::copy_file(named, beside);
  load = c.load();
  EXPECT_EQ(load.notes(), beside + " is not used: the model was written since\n");
  EXPECT_TRUE(load.use.file.starts_with(c.options.folder));
  pack_model(c.model.path(), beside);
  EXPECT_EQ(c.load().use.file, beside);

  // What is named and of no use is told, never written over.
  const std::string model_bytes = bytes_of(c.model.path());
  for (const std::string& wrong : {c.model.path(), c.folder.path("absent"), c.folder.path("")}) {
    c.options.file = wrong;
    load = c.load();
    EXPECT_TRUE(load.weights);
    EXPECT_TRUE(load.notes().starts_with(wrong + " is not used: ")) << load.notes();
  }
  EXPECT_EQ(bytes_of(c.model.path()), model_bytes);
}

TEST(PackedCache, AModelThatIsWrong_IsRefusedAsEver_AndLeavesNothing) {
  auto sketch = testing::sample_model();
  sketch.set_floats("blk.1.ffn_up.weight", {64, 128}, std::vector<float>(64 * 128, std::nanf("")));
  const testing::TemporaryFile bad("bad.gguf", sketch.build().bytes);
  const PackedCase c;
  PosixFiles files;
  for (int i = 0; i < 2; ++i) {
    try {
      c.load(files, bad.path());
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::numeric) << error.message();
    }
    EXPECT_EQ(c.kept().size(), 0u);
  }
  EXPECT_THROW(pack_model(bad.path(), c.folder.path("out")), Error);
  EXPECT_FALSE(std::filesystem::exists(c.folder.path("out")));
}

}  // namespace
}  // namespace kvtide
