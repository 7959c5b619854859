// manifest_check.cpp: what the entries of a manifest mean together: layers, vocabulary, tensors, files.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "kvtide/error.h"
#include "shards/manifest.h"

namespace kvtide {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += cat(text.empty() ? "" : ", ", extent);
  return cat("[", text, "]");
}

class Check {
 public:
  Check(const ShardManifest& manifest, const std::string& file) : m_(manifest), file_(file) {}

  void all() const {
    names_and_files();
    layers();
    vocabulary();
    ropes();
    for (const ShardEntry& shard : m_.shards) tensors(shard);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat(file_, ": ", why));
  }

  void bare(const std::string& name, const std::string& whose) const {
    const bool fine = !name.empty() && name[0] != '.' && name.find('/') == name.npos &&
                      name.find('\0') == name.npos && name != kManifestFile;
    if (!fine) refuse(cat(whose, ": 'file' is ", quoted(name), "; it must be the bare name of a file"));
  }

  void names_and_files() const {
    std::map<std::string, std::string> files;
    std::set<std::string> names;
    for (const ShardEntry& shard : m_.shards) {
      const std::string& name = shard.info.name;
      if (name.empty() || !names.insert(name).second)
        refuse(cat("two shards are called ", quoted(name), "; every shard has a name of its own"));
      bare(shard.file.file, cat("shard ", quoted(name)));
      const auto [other, is_new] = files.emplace(shard.file.file, name);
      if (!is_new)
        refuse(cat("shards ", quoted(other->second), " and ", quoted(name), " share the file ",
                   quoted(shard.file.file), "; every shard has one of its own"));
    }
    if (m_.tokenizer_files.empty()) refuse("'tokenizer.files' is empty; a tokenizer travels with the shards");
    for (const FileEntry& file : m_.tokenizer_files) {
      constexpr std::string_view kFolder = "tokenizer/";
      if (!file.file.starts_with(kFolder))
        refuse(cat("tokenizer file ", quoted(file.file), " must lie in tokenizer/"));
      bare(file.file.substr(kFolder.size()), "tokenizer");
    }
  }

  void layers() const {
    const ShardEntry* embedding = nullptr;
    const ShardKind feed_forward = m_.config.experts ? ShardKind::moe : ShardKind::mlp;
    std::map<std::pair<ShardKind, int>, const ShardEntry*> seen;
    for (const ShardEntry& shard : m_.shards) {
      const ShardKind kind = shard.info.kind;
      if (kind == ShardKind::embedding) {
        if (embedding != nullptr)
          refuse(cat("shards ", quoted(embedding->info.name), " and ", quoted(shard.info.name),
                     " both are the embedding; there must be one"));
        embedding = &shard;
      }
      if (kind == ShardKind::embedding || kind == ShardKind::head) continue;
      if (kind == ShardKind::attention) kind_of_attention(shard);
      if (kind != ShardKind::attention && kind != feed_forward)
        refuse(cat("shard ", quoted(shard.info.name), " is of the kind ", shard_kind_name(kind),
                   m_.config.experts ? "; a model with 'experts' has moe shards"
                                     : "; moe shards belong to a model with 'experts' and 'router_width'"));
      const auto [other, is_new] = seen.emplace(std::pair(kind, shard.info.layer), &shard);
      if (!is_new)
        refuse(cat("shards ", quoted(other->second->info.name), " and ", quoted(shard.info.name),
                   " both are the ", shard_kind_name(kind), " shard of layer ", shard.info.layer,
                   "; a layer has one of each"));
    }
    if (embedding == nullptr) refuse("there is no embedding shard");
    for (int layer = 0; layer < static_cast<int>(m_.config.layers.size()); ++layer)
      for (const ShardKind kind : {ShardKind::attention, feed_forward})
        if (!seen.contains({kind, layer}))
          refuse(cat("layer ", layer, " of ", m_.config.layers.size(), " has no ", shard_kind_name(kind),
                     " shard"));
  }

  void kind_of_attention(const ShardEntry& shard) const {
    const bool convolved = m_.config.convolved;
    if ((shard.attention == "cca") != convolved)
      refuse(cat("shard ", quoted(shard.info.name), " has ", quoted(shard.attention),
                 " attention; the model ",
                 convolved ? "has 'convolved' queries and keys, which are cca"
                           : "has no 'convolved' queries and keys, so it must be gqa"));
  }

  void vocabulary() const {
    std::vector<const ShardEntry*> heads;
    for (const ShardEntry& shard : m_.shards)
      if (shard.info.kind == ShardKind::head) heads.push_back(&shard);
    std::sort(heads.begin(), heads.end(), [](const ShardEntry* a, const ShardEntry* b) {
      return a->info.vocab_first < b->info.vocab_first;
    });
    if (heads.empty()) refuse("there is no head shard");
    std::int64_t covered = 0;
    for (const ShardEntry* head : heads) {
      const std::int64_t first = head->info.vocab_first, last = head->info.vocab_last;
      const std::string which =
          cat("head shard ", quoted(head->info.name), " holds the tokens ", first, " to ", last);
      if (first >= last) refuse(cat(which, ", which are none"));
      if (first > covered) refuse(cat(which, ", but no head holds the tokens ", covered, " to ", first));
      if (first < covered)
        refuse(cat(which, ", but the tokens ", first, " to ", std::min(covered, last),
                   " are in another head, too"));
      covered = last;
    }
    if (covered != m_.config.vocab)
      refuse(cat("the heads end at token ", covered, " of a vocabulary of ", m_.config.vocab));
  }

  void ropes() const {
    const ModelConfig& c = m_.config;
    if (c.rope_dims % 2 != 0 || c.rope_dims > c.head_dim)
      refuse(cat("'rope_dims' is ", c.rope_dims, "; it must be even and at most 'head_dim', which is ",
                 c.head_dim));
    for (const RopeFrequencies& rope : m_.ropes)
      if (static_cast<std::int64_t>(rope.frequencies.size()) != c.rope_dims / 2)
        refuse(cat("a rope has ", rope.frequencies.size(), " frequencies; 'rope_dims' ", c.rope_dims,
                   " asks for ", c.rope_dims / 2));
    for (const ShardEntry& shard : m_.shards)
      if (shard.info.kind == ShardKind::attention && c.rope_dims > 0 &&
          shard.info.rope >= static_cast<int>(m_.ropes.size()))
        refuse(
            cat("shard ", quoted(shard.info.name), " wants rope ", shard.info.rope, " of ", m_.ropes.size()));
  }

  void tensors(const ShardEntry& shard) const {
    const auto about = [&](const std::string& name) {
      return cat("shard ", quoted(shard.info.name), ": tensor ", quoted(name));
    };
    std::map<std::string, const TensorEntry*> left;
    for (const TensorEntry& tensor : shard.tensors) left.emplace(tensor.name, &tensor);
    const auto take = [&](const std::string& name) -> const TensorEntry* {
      const auto found = left.find(name);
      if (found == left.end()) return nullptr;
      const TensorEntry* tensor = found->second;
      left.erase(found);
      return tensor;
    };
    for (const TensorNeed& need : tensor_needs(m_.config, shard)) {
      const TensorEntry* tensor = take(need.name);
      if (tensor == nullptr) {
        if (need.optional) continue;
        refuse(cat(about(need.name), " is missing"));
      }
      std::vector<std::int64_t> wanted = {need.rows};
      if (need.columns > 0) wanted.push_back(need.columns);
      if (tensor->shape != wanted)
        refuse(cat(about(need.name), " has shape ", shape_text(tensor->shape),
                   "; the model's numbers ask for ", shape_text(wanted)));
      const bool matrix = need.columns > 0 && !need.numbers;
      if (tensor->dtype != "F32" && tensor->dtype != "F16" && !(matrix && tensor->dtype == "I8"))
        refuse(cat(about(need.name), " has dtype ", quoted(tensor->dtype), "; it must be ",
                   matrix ? "F16, I8 or F32" : "F32 or F16"));
      if (tensor->dtype != "I8") continue;
      const std::string scale_name = need.name + "_scale";
      const TensorEntry* scale = take(scale_name);
      if (scale == nullptr) refuse(cat(about(need.name), " is I8, but ", quoted(scale_name), " is missing"));
      if (scale->dtype != "F32" || (scale->shape != std::vector<std::int64_t>{1} &&
                                    scale->shape != std::vector<std::int64_t>{need.rows}))
        refuse(cat(about(scale_name), " is ", quoted(scale->dtype), " ", shape_text(scale->shape),
                   "; it must be F32 [1] or [", need.rows, "]"));
    }
    if (!left.empty()) refuse(cat(about(left.begin()->first), " is none that this kind of shard has"));
  }

  const ShardManifest& m_;
  const std::string& file_;
};

}  // namespace

const char* shard_kind_name(ShardKind kind) noexcept {
  switch (kind) {
    case ShardKind::embedding:
      return "embedding";
    case ShardKind::attention:
      return "attention";
    case ShardKind::mlp:
      return "mlp";
    case ShardKind::moe:
      return "moe";
    case ShardKind::head:
      return "head";
  }
  return "";
}

const ShardEntry* ShardManifest::find(std::string_view shard) const {
  for (const ShardEntry& entry : shards)
    if (entry.info.name == shard) return &entry;
  return nullptr;
}

void check_manifest(const ShardManifest& manifest, const std::string& file) { Check(manifest, file).all(); }

}  // namespace kvtide
