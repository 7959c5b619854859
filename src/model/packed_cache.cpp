#include "model/packed_cache.h"

#include <utility>

#include "base/text.h"
#include "formats/text_file.h"
#include "kernels/pack.h"
#include "kvtide/error.h"
#include "model/packed_binding.h"
#include "model/packed_folder.h"

namespace kvtide {
namespace {

// Failures that say nothing about the model.
bool is_of_file(const Error& error) {
  return error.code() == ErrorCode::bad_format || error.code() == ErrorCode::unsupported ||
         error.code() == ErrorCode::not_found || error.code() == ErrorCode::io;
}

class PackedLoader {
 public:
  PackedLoader(const Checkpoint& checkpoint, ThreadPool& pool, const PackedOptions& options,
               const PackedWorld& world, PackedUse& use)
      : checkpoint_(checkpoint),
        pool_(pool),
        options_(options),
        files_(world.files),
        use_(use),
        folder_(options.folder, world.files, world.boot) {}

  std::optional<Weights> load() {
    // Who names a file vouches for its model: copies have other times.
    if (!options_.file.empty())
      if (auto weights = from(options_.file, false, "is not used")) return weights;
    if (const std::string beside = checkpoint_.path() + ".packed"; file_exists(beside))
      if (auto weights = from(beside, true, "is not used")) return weights;
    if (folder_.path().empty()) return std::nullopt;
    const std::string place = folder_.place_of(checkpoint_.path(), packed_layout().kernels);
    if (file_exists(place))
      if (auto weights = from(place, true, "is made anew")) {
        folder_.touch(place);
        return weights;
      }
    return made(place);
  }

 private:
  std::optional<Weights> from(const std::string& path, bool same_time, std::string_view otherwise) {
    try {
      PackedFile packed(path);
      check_binding(packed.binding(), packed_binding(checkpoint_), same_time);
      if (options_.verify || !folder_.was_checked(path)) {
        packed.verify(pool_);
        folder_.set_checked(path);
      }
      const auto bytes = static_cast<std::int64_t>(packed.all_bytes().size());
      Weights weights(checkpoint_, pool_, std::move(packed));
      use_.file = path;
      use_.bytes = bytes;
      return weights;
    } catch (const Error& error) {
      if (!is_of_file(error)) throw;
      const std::string_view why = error.message();
      const bool named = why.starts_with(path);
      use_.notes.push_back(cat(path, " ", otherwise, ": ", named ? why.substr(path.size() + 2) : why));
      return std::nullopt;
    }
  }

  static void check_binding(const PackedBinding& found, const PackedBinding& ours, bool same_time) {
    const auto refuse = [](const std::string& why) { throw Error(ErrorCode::bad_format, why); };
    if (found.layout != ours.layout || found.kernels != ours.kernels)
      refuse(cat("it was packed in layout ", found.layout, " for ", quoted(found.kernels),
                 " kernels; this program reads layout ", ours.layout, " for ", quoted(ours.kernels)));
    if (found.program != ours.program)
      refuse(cat("version ", quoted(found.program), " packed it; this is version ", ours.program));
    if (found.model != ours.model) refuse("it belongs to other weights");
    if (same_time && found.time != ours.time) refuse("the model was written since");
  }

  std::optional<Weights> made(const std::string& place) {
    try {
      const std::int64_t bytes = weight_file_bytes(checkpoint_);
      if (bytes < options_.smallest) return std::nullopt;
      if (const std::string why = folder_.make_room(place, bytes, options_.limit); !why.empty())
        return not_kept(why);
      save_packed(checkpoint_, pool_, files_, place, packed_binding(checkpoint_), Flush::later);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io && error.code() != ErrorCode::not_found) throw;
      return not_kept(error.message());
    }
    folder_.set_checked(place);
    auto weights = from(place, true, "is not used");
    use_.made = weights.has_value();
    return weights;
  }

  std::nullopt_t not_kept(const std::string& why) {
    use_.notes.push_back(cat("the packed weights are not kept: ", why));
    return std::nullopt;
  }

  const Checkpoint& checkpoint_;
  ThreadPool& pool_;
  const PackedOptions& options_;
  FileSystem& files_;
  PackedUse& use_;
  PackedFolder folder_;
};

}  // namespace

std::optional<Weights> load_packed(const Checkpoint& checkpoint, ThreadPool& pool,
                                   const PackedOptions& options, const PackedWorld& world, PackedUse& use) {
  return PackedLoader(checkpoint, pool, options, world, use).load();
}

std::int64_t save_packed(const Checkpoint& checkpoint, ThreadPool& pool, FileSystem& files,
                         const std::string& path, const PackedBinding& binding, Flush flush) {
  std::int64_t bytes = 0;
  save_file_in_parts(
      files, path,
      [&](const FileSink& write) {
        const auto counted = [&](std::span<const std::byte> part) {
          write(part);
          bytes += static_cast<std::int64_t>(part.size());
        };
        const FileSink sink(counted);
        PackedWriter writer(sink, binding);
        Weights::pack(checkpoint, pool, writer);
        if (packed_binding(checkpoint) != binding)
          throw Error(ErrorCode::io, cat(checkpoint.path(), ": the model was written while it was packed"));
      },
      flush);
  return bytes;
}

}  // namespace kvtide
