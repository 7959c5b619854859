// hostile_package.h: packages that break one rule each. All end in one line that begins with the file and says what is wrong.
//
//   const std::vector<HostilePackage> kCases = {{"NoOpset", [](auto& p) { p.model = without(p.model, "502/2/2/2"); },
//                                                "opset: is missing"}};
//   HOSTILE_PACKAGES(CoremlWire, kCases);
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "coreml/write/package_writer.h"
#include "kvtide/error.h"
#include "tests/coreml/sample_packages.h"
#include "tests/coreml/wire_editor.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide::testing {

// The files of a package, to be damaged.
struct PackageFiles {
  std::string manifest, model, weights;
  std::string mil, metadata;  // of a compiled model: those above are not written then
};

inline PackageFiles files_of(const cm::Package& package) {
  const TemporaryFolder folder;
  cm::write_package(package, folder / "a.mlpackage");
  const std::string data = folder / "a.mlpackage/Data/com.apple.CoreML";
  return {contents_of(folder / "a.mlpackage/Manifest.json"), contents_of(data + "/model.mlmodel"),
          contents_of(data + "/weights/weight.bin"), "", ""};
}

inline const PackageFiles& small_files() {
  static const PackageFiles files = files_of(small_package());
  return files;
}

inline void put_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// The path to be opened.
inline std::string put_package(const TemporaryFolder& folder, const PackageFiles& files) {
  const bool compiled = !files.mil.empty();
  const std::string path = folder / (compiled ? "bad.mlmodelc" : "bad.mlpackage");
  const std::string inside = compiled ? path : path + "/Data/com.apple.CoreML";
  if (compiled)
    put_file(path + "/model.mil", files.mil);
  else
    put_file(path + "/Manifest.json", files.manifest), put_file(inside + "/model.mlmodel", files.model);
  if (!files.metadata.empty()) put_file(path + "/metadata.json", files.metadata);
  if (!files.weights.empty()) put_file(inside + "/weights/weight.bin", files.weights);
  return path;
}

struct HostilePackage {
  std::string name;
  std::function<void(PackageFiles&)> damage;
  std::string says;
};

inline void PrintTo(const HostilePackage& bad, std::ostream* out) { *out << bad.name; }

inline void expect_refused(const HostilePackage& bad) {
  PackageFiles files = small_files();
  bad.damage(files);
  const TemporaryFolder folder;
  const std::string path = put_package(folder, files);
  try {
    cm::open_package(path);
    ADD_FAILURE() << bad.name << " was accepted";
  } catch (const Error& error) {
    EXPECT_TRUE(error.message().starts_with(path)) << error.message();
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
    EXPECT_NE(error.message().find(bad.says), std::string::npos)
        << "the message: " << error.message() << "\nshould say:  " << bad.says;
  }
}

#define HOSTILE_PACKAGES(Suite, cases)                                                 \
  class Suite : public ::testing::TestWithParam<::kvtide::testing::HostilePackage> {}; \
  TEST_P(Suite, IsRefused) { ::kvtide::testing::expect_refused(GetParam()); }          \
  INSTANTIATE_TEST_SUITE_P(Named, Suite, ::testing::ValuesIn(cases),                   \
                           [](const auto& instance) { return instance.param.name; })

}  // namespace kvtide::testing
