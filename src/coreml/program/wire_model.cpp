#include "coreml/program/wire_model.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/text.h"
#include "coreml/program/check_program.h"
#include "coreml/program/wire.h"
#include "coreml/program/wire_description.h"
#include "coreml/program/wire_program.h"

namespace kvtide::coreml {
namespace {

constexpr std::uint32_t kPipeline = 202, kProgram = 502;

// Kinds of models that are no programs, by their field.
struct OtherKind {
  std::uint32_t field;
  std::string_view name;
};
constexpr OtherKind kOthers[] = {{200, "a pipeline that classifies"},
                                 {201, "a pipeline that regresses"},
                                 {300, "a linear regressor"},
                                 {301, "a support vector regressor"},
                                 {302, "a tree ensemble"},
                                 {303, "a neural network that regresses"},
                                 {304, "a Bayesian regressor"},
                                 {400, "a linear classifier"},
                                 {401, "a support vector classifier"},
                                 {402, "a tree ensemble"},
                                 {403, "a neural network that classifies"},
                                 {404, "a k-nearest-neighbours classifier"},
                                 {500, "a neural network"},
                                 {501, "an item recommender"},
                                 {555, "a custom model"},
                                 {556, "a linked model"},
                                 {560, "a sound analyser"},
                                 {600, "a one-hot encoder"},
                                 {601, "an imputer"},
                                 {602, "a feature vectorizer"},
                                 {603, "a dictionary vectorizer"},
                                 {604, "a scaler"},
                                 {606, "a categorical mapping"},
                                 {607, "a normalizer"},
                                 {609, "an array feature extractor"},
                                 {610, "a non-maximum suppression"},
                                 {900, "an identity"},
                                 {2000, "a text classifier"},
                                 {2001, "a word tagger"},
                                 {2002, "a vision feature print"},
                                 {2003, "a sound analyser"},
                                 {2004, "a gazetteer"},
                                 {2005, "a word embedding"},
                                 {2006, "an audio feature print"},
                                 {3000, "a serialized model"}};

Package read(WireMessage model, WeightFiles& weights, const std::string& source);

void read_stages(WireMessage message, WeightFiles& weights, Package& into) {
  std::vector<std::string> names;
  std::int64_t number = 0;
  for (WireMessage at = message; at.next();) {
    if (at.field() == 1) into.stages.push_back(read(at.message("models", number++), weights, into.path));
    if (at.field() == 2) names.push_back(at.text("names", static_cast<std::int64_t>(names.size())));
  }
  if (into.stages.empty()) message.fail_at("models", "is empty: a pipeline has a model");
}

// The only function of a description without functions is that of the program.
void name_functions(Description& description, const Program& program) {
  if (description.functions.size() == 1 && description.functions[0].name.empty()) {
    const bool main = program.functions.size() != 1 || program.function("main") != nullptr;
    description.functions[0].name = main ? "main" : program.functions[0].name;
  }
  if (description.default_function.empty()) description.default_function = description.functions[0].name;
}

Package read(WireMessage model, WeightFiles& weights, const std::string& source) {
  Package out;
  out.path = source;
  bool described = false, filled = false;
  for (WireMessage at = model; at.next();) {
    if (at.field() == 1)
      out.description.specification = static_cast<std::int32_t>(at.integer("specificationVersion", 1, 1000));
    if (at.field() == 2) {
      if (described) at.fail_at("description", "stands twice");
      read_description(at.message("description"), out.description);
      described = true;
    }
    if (at.field() == kPipeline || at.field() == kProgram) {
      if (filled)
        at.fail_at(at.field() == kProgram ? "mlProgram" : "pipeline", "is the second model of one file");
      filled = true;
    }
    if (at.field() == kProgram) {
      WireMessage program = at.message("mlProgram");
      out.program = read_program(program, weights);
      out.program.source = source;
      check_program(out.program, Places::fields, program.path());
    }
    if (at.field() == kPipeline) read_stages(at.message("pipeline"), weights, out);
    const auto other = std::find_if(std::begin(kOthers), std::end(kOthers),
                                    [&](const OtherKind& kind) { return kind.field == at.field(); });
    if (other != std::end(kOthers))
      model.fail(cat("is ", other->name, "; ML programs and pipelines of them are read"),
                 ErrorCode::unsupported);
  }
  if (out.description.specification == 0) model.fail_at("specificationVersion", "is missing");
  if (!described) model.fail_at("description", "is missing");
  if (!filled) model.fail("holds no model");
  name_functions(out.description, out.program);
  if (out.stages.empty()) check_description(out.description, out.program, cat(model.path(), ".description"));
  return out;
}

}  // namespace

Package read_model(std::span<const std::byte> bytes, const std::string& source, WeightFiles& weights) {
  WireSource wire{source};
  return read(WireMessage(bytes, wire, "Model"), weights, source);
}

}  // namespace kvtide::coreml
