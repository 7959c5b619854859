#include "base/out_of_memory.h"
#include "base/text.h"
#include "formats/text_file.h"
#include "kvtide/validate.h"
#include "shards/shard_folder.h"
#include "validate/compare_weights.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

bool is_golden(const std::string& path) { return file_exists(path + "/tokens.npy"); }

std::unique_ptr<PlainWeights> weights_at(const std::string& path) {
  return is_shard_folder(path) ? plain_shard_weights(path) : plain_weights(path);
}

class ArraysWithWeights final : public Reference {
 public:
  ArraysWithWeights(std::unique_ptr<Reference> arrays, std::unique_ptr<Reference> plain)
      : arrays_(std::move(arrays)), plain_(std::move(plain)) {}
  std::string name() const override { return arrays_->name(); }
  std::optional<std::vector<TokenId>> text() const override { return arrays_->text(); }
  std::vector<TokenId> continuation() const override { return arrays_->continuation(); }
  Golden run(std::span<const TokenId> tokens) override {
    Golden golden = arrays_->run(tokens);
    if (!golden.hidden.empty()) golden.ties = plain_->ties_of(golden);
    return golden;
  }
  std::optional<TwistedLayer> twisted(int layer, std::span<const float> input, const Twist& twist) override {
    return plain_->twisted(layer, input, twist);
  }
  std::vector<double> frequencies(int layer) const override {
    const auto known = arrays_->frequencies(layer);
    return known.empty() ? plain_->frequencies(layer) : known;
  }

 private:
  std::unique_ptr<Reference> arrays_, plain_;
};

}  // namespace

std::unique_ptr<Reference> with_weights(std::unique_ptr<Reference> arrays, std::unique_ptr<Reference> plain) {
  return std::make_unique<ArraysWithWeights>(std::move(arrays), std::move(plain));
}

bool holds_weights(const std::string& path) {
  return !path.empty() && !is_golden(path) &&
         (is_shard_folder(path) || file_exists(path + "/config.json") || path.ends_with(".gguf"));
}

std::unique_ptr<Reference> open_reference(const std::string& path, int threads) try {
  return holds_weights(path) ? plain_reference(weights_at(path), threads) : golden_reference(path);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void compare_shards(ValidationReport& report, const std::string& folder, const std::string& model) try {
  compare_vocabulary(report, folder);
  if (holds_weights(model)) {
    compare_weights(report, folder, *plain_shard_weights(folder), *weights_at(model));
    return;
  }
  report.checks.push_back(
      {"weights", Outcome::skipped, "not compared: --reference MODEL says what they should be"});
  report.notes.insert(
      report.notes.begin(),
      {"weights_not_compared",
       "the shards were compared with their own weights and manifest, or with arrays. Whether these "
       "are the model's shows only beside the model: --reference MODEL"});
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
