// Normalisations along axes.
#include "base/text.h"
#include "coreml/run/convert.h"
#include "coreml/run/operations.h"
#include "coreml/run/rows.h"

namespace kvtide::coreml {
namespace normalising {
namespace {

// n factors: those of a parameter, or `otherwise` everywhere.
std::vector<float> factors(Call& call, std::size_t parameter, std::int64_t n, float otherwise) {
  std::vector<float> values(static_cast<std::size_t>(n), otherwise);
  if (!call.has(parameter)) return values;
  const Tensor& given = call.in(parameter);
  if (given.elements() != n)
    call.refuse(cat(call.step.row->parameters[parameter].name, " of shape ", text_of(given.shape),
                    " for rows of ", n));
  load(call.run.kernels, given, 0, n, values.data());
  return values;
}

void layer_norm(Call& call) {
  const Tensor x = call.in(0);
  const Rows rows = rows_along(call.run, x, call.axes(1, x.rank()));
  const std::vector<float> gamma = factors(call, 2, rows.width, 1.0f),
                           beta = factors(call, 3, rows.width, 0.0f);
  const float epsilon = call.real(4, 1e-5f);
  const Tensor result = call.run.tensors.take(call.step.outputs[0].dtype, rows.tensor.shape);
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, rows.width));
  in_pieces(call.run, rows.count, grain, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> row(static_cast<std::size_t>(rows.width)), y(row.size());
    for (std::int64_t i = first; i < last; ++i) {
      load(call.run.kernels, rows.tensor, i * rows.width, rows.width, row.data());
      call.run.kernels.elementwise.layer_norm(row.data(), gamma.data(), beta.data(), rows.width, epsilon,
                                              y.data());
      store(call.run.kernels, y.data(), rows.width, result, i * rows.width);
    }
  });
  call.give(put_back(call.run, rows, result));
}

}  // namespace
}  // namespace normalising

OperationRows normalise_operations() {
  return {operation("layer_norm", {"x", "axes?", "gamma?", "beta?", "epsilon?"}, normalising::layer_norm)};
}

}  // namespace kvtide::coreml
