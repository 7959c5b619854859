// Products: linear, matmul, convolutions, einsum.
#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "coreml/run/batched.h"
#include "coreml/run/broadcast.h"
#include "coreml/run/convert.h"
#include "coreml/run/moves.h"
#include "coreml/run/operations.h"

namespace kvtide::coreml {
namespace products {
namespace {

// x [rows][inputs] times the packed constant, plus a bias, as rows of the result.
void times_weight(Call& call, const Tensor& x, const std::vector<float>& bias, const Tensor& out) {
  const Weight& weight = *call.step.weight;
  const Floats activations(call.run, x);
  const std::int64_t rows = out.elements() / std::max<std::int64_t>(1, weight.outputs());
  multiply(call.run, weight, activations.data(), rows,
           [&](std::int64_t row, std::int64_t output, float* sums, int count) {
             for (int i = 0; i < count && !bias.empty(); ++i)
               sums[i] += bias[static_cast<std::size_t>(output + i)];
             store(call.run.kernels, sums, count, out, row * weight.outputs() + output);
           });
}

std::vector<float> bias_of(Call& call, std::size_t parameter, std::int64_t n) {
  if (!call.has(parameter)) return {};
  const Tensor& bias = call.in(parameter);
  if (bias.elements() != n) call.refuse(cat("a bias of shape ", text_of(bias.shape), " for ", n, " outputs"));
  std::vector<float> values(static_cast<std::size_t>(n));
  load(call.run.kernels, bias, 0, n, values.data());
  return values;
}

struct Leading {
  Shape shape;
  std::vector<BatchPair> pairs;
};

// The leading axes of both, broadcast; elements of a matrix of each.
Leading leading_axes(const Call& call, const Shape& a, std::int64_t a_matrix, const Shape& b,
                     std::int64_t b_matrix) {
  const Shape a_front(a.begin(), a.end() - 2), b_front(b.begin(), b.end() - 2);
  const Shape* const fronts[] = {&a_front, &b_front};
  const auto shape = broadcast_shape(fronts);
  if (!shape) call.refuse(cat("shapes ", text_of(a), " and ", text_of(b), " do not fit together"));
  Leading leading{*shape, {}};
  for (std::int64_t i = 0; i < elements_in(*shape); ++i) {
    std::int64_t at[2] = {0, 0}, step[2] = {1, 1}, rest = i;
    for (std::size_t axis = shape->size(); axis-- > 0;) {
      const std::int64_t place = rest % (*shape)[axis];
      rest /= (*shape)[axis];
      for (int t = 0; t < 2; ++t) {
        const Shape& front = *fronts[t];
        const auto skipped = static_cast<std::ptrdiff_t>(shape->size() - front.size());
        if (static_cast<std::ptrdiff_t>(axis) < skipped) continue;
        const std::int64_t size = front[axis - static_cast<std::size_t>(skipped)];
        at[t] += (size == 1 ? 0 : place) * step[t];
        step[t] *= size;
      }
    }
    leading.pairs.push_back({at[0] * a_matrix, at[1] * b_matrix});
  }
  return leading;
}

Tensor last_two_swapped(Runtime& run, const Tensor& x) {
  Shape shape = x.shape, steps = steps_of(x.shape);
  std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  std::swap(steps[steps.size() - 1], steps[steps.size() - 2]);
  Tensor result = run.tensors.take(x.dtype, shape);
  copy_strided(run, x, 0, shape, steps, result);
  return result;
}

// Any two tensors of at least two axes.
Tensor multiplied(Call& call, Tensor x, const Tensor& y, bool transpose_x, bool transpose_y) {
  if (transpose_x) x = last_two_swapped(call.run, x);
  const std::int64_t m = x.shape[x.shape.size() - 2], k = x.shape.back();
  const std::int64_t n = transpose_y ? y.shape[y.shape.size() - 2] : y.shape.back();
  if ((transpose_y ? y.shape.back() : y.shape[y.shape.size() - 2]) != k)
    call.refuse(cat("a product of shapes ", text_of(x.shape), " and ", text_of(y.shape),
                    transpose_y ? ", transposed" : ""));
  const Leading leading = leading_axes(call, x.shape, m * k, y.shape, n * k);
  Shape shape = leading.shape;
  shape.insert(shape.end(), {m, n});
  call.check_shape(shape);
  Tensor result = call.run.tensors.take(call.step.outputs[0].dtype, shape);
  if (!is_float(x.dtype)) {  // indices: exact below 2^24, which is more than they are
    const Tensor sums = call.run.tensors.take(DataType::fp32, shape);
    multiply_batches(call.run, x, y, leading.pairs, m, n, k, transpose_y, sums);
    store(call.run.kernels, sums.as<const float>(), sums.elements(), result, 0);
    return result;
  }
  multiply_batches(call.run, x, y, leading.pairs, m, n, k, transpose_y, result);
  return result;
}

void linear(Call& call) {
  const Tensor x = call.in(0);
  const Shape weight = call.in(1).shape;
  if (weight.size() != 2 || x.shape.empty() || x.shape.back() != weight[1])
    call.refuse(cat("a weight of shape ", text_of(weight), " for x of shape ", text_of(x.shape)));
  Shape shape = x.shape;
  shape.back() = weight[0];
  const std::vector<float> bias = bias_of(call, 2, weight[0]);
  if (call.step.weight) return times_weight(call, x, bias, call.make(shape));
  Tensor rows = x.reshaped({x.elements() / std::max<std::int64_t>(1, weight[1]), weight[1]});
  const Tensor product = multiplied(call, rows, call.in(1), false, true);
  const Floats sums(call.run, product);
  const Tensor& out = call.make(shape);
  FloatResult result(call.run, out);
  for (std::int64_t i = 0; i < out.elements(); ++i)
    result.data()[i] = sums[i] + (bias.empty() ? 0.0f : bias[static_cast<std::size_t>(i % weight[0])]);
  result.store();
}

void matmul(Call& call) {
  Tensor x = call.in(0);
  const bool transpose_x = call.flag(2, false), transpose_y = call.flag(3, false);
  if (call.step.weight) {
    if (x.rank() >= 2 && transpose_x) x = last_two_swapped(call.run, x);
    const Weight& weight = *call.step.weight;
    if (x.shape.empty() || x.shape.back() != weight.inputs())
      call.refuse(cat("a product of shapes ", text_of(x.shape), " and ", text_of(call.in(1).shape)));
    Shape shape = x.shape;
    shape.back() = weight.outputs();
    const auto ones =
        static_cast<std::ptrdiff_t>(call.in(1).shape.size()) - static_cast<std::ptrdiff_t>(shape.size());
    if (ones > 0 && shape.size() >= 2) shape.insert(shape.begin(), static_cast<std::size_t>(ones), 1);
    return times_weight(call, x, {}, call.make(shape));
  }
  Tensor y = call.in(1);
  if (x.shape.empty() || y.shape.empty()) call.refuse("a product with a single number");
  const bool row = x.rank() == 1, column = y.rank() == 1;
  if (row) x.shape.insert(x.shape.begin(), 1);
  if (column) y.shape.push_back(1);
  Tensor result = multiplied(call, x, y, transpose_x && !row, transpose_y && !column);
  if (column) result.shape.pop_back();
  if (row) result.shape.erase(result.shape.end() - (column ? 1 : 2));
  call.give(result);
}

// ---- convolutions: x [N, C, (H,) W], weight [Co, C / groups, (kH,) kW]

struct Convolution {
  std::int64_t batch, in_channels, out_channels, groups;
  std::int64_t size[2], kernel[2], stride[2], dilation[2], before[2], out[2];  // height, width
};

std::int64_t pad_total(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
  const std::int64_t out = (size + stride - 1) / stride;
  return std::max<std::int64_t>(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - size);
}

Convolution convolution_of(Call& call) {
  const Shape &x = call.in(0).shape, &w = call.in(1).shape;
  const std::size_t spatial = x.size() < 3 ? 0 : x.size() - 2;
  if (spatial < 1 || spatial > 2 || w.size() != x.size())
    call.refuse(cat("a weight of shape ", text_of(w), " for x of shape ", text_of(x),
                    "; one or two spatial axes are known"));
  Convolution c{};
  c.batch = x[0];
  c.in_channels = x[1];
  c.out_channels = w[0];
  c.groups = call.number(7, 1);
  if (c.groups < 1 || c.in_channels % c.groups != 0 || c.out_channels % c.groups != 0 ||
      w[1] != c.in_channels / c.groups)
    call.refuse(
        cat("a weight of shape ", text_of(w), " for ", c.in_channels, " channels in ", c.groups, " groups"));
  const auto strides = call.numbers(3), pads = call.numbers(5), dilations = call.numbers(6);
  const std::string_view pad_type = call.text(4, "valid");
  if (pad_type != "valid" && pad_type != "custom" && pad_type != "same" && pad_type != "same_lower")
    call.refuse(cat("pad_type ", quoted(pad_type)));
  for (std::size_t i = 0; i < 2; ++i) {
    const bool absent = spatial == 1 && i == 0;
    const std::size_t from = spatial == 1 ? 0 : i;
    c.size[i] = absent ? 1 : x[2 + from];
    c.kernel[i] = absent ? 1 : w[2 + from];
    c.stride[i] = absent || from >= strides.size() ? 1 : strides[from];
    c.dilation[i] = absent || from >= dilations.size() ? 1 : dilations[from];
    if (c.stride[i] < 1 || c.dilation[i] < 1) call.refuse("strides and dilations are at least 1");
    std::int64_t total = 0;
    if (!absent && pad_type == "custom" && 2 * from + 1 < pads.size()) {
      c.before[i] = pads[2 * from];
      total = pads[2 * from] + pads[2 * from + 1];
    } else if (!absent && (pad_type == "same" || pad_type == "same_lower")) {
      total = pad_total(c.size[i], c.kernel[i], c.stride[i], c.dilation[i]);
      c.before[i] = pad_type == "same" ? total / 2 : total - total / 2;
    }
    const std::int64_t reach = (c.kernel[i] - 1) * c.dilation[i] + 1;
    c.out[i] = (c.size[i] + total - reach) / c.stride[i] + 1;
    if (c.size[i] + total < reach)
      call.refuse(cat("a kernel of ", c.kernel[i], " over ", c.size[i], " elements"));
  }
  return c;
}

// A kernel of one element is a product: columns of x are its rows.
void convolve_points(Call& call, const Convolution& c, const std::vector<float>& bias, const Tensor& out) {
  const Tensor x = call.in(0);
  const std::int64_t points = c.size[0] * c.size[1];
  Tensor rows = x;
  if (points > 1) {
    rows = call.run.tensors.take(x.dtype, {c.batch, points, c.in_channels});
    copy_strided(call.run, x, 0, rows.shape, {points * c.in_channels, 1, points}, rows);
  }
  const Floats activations(call.run, rows);
  multiply(call.run, *call.step.weight, activations.data(), c.batch * points,
           [&](std::int64_t row, std::int64_t output, float* sums, int count) {
             for (int i = 0; i < count && !bias.empty(); ++i)
               sums[i] += bias[static_cast<std::size_t>(output + i)];
             if (points == 1) return store(call.run.kernels, sums, count, out, row * c.out_channels + output);
             for (int i = 0; i < count; ++i)
               store(call.run.kernels, sums + i, 1, out,
                     (row / points * c.out_channels + output + i) * points + row % points);
           });
}

float convolve_at(const Convolution& c, const float* x, const float* w, std::int64_t n, std::int64_t co,
                  std::int64_t oy, std::int64_t ox) {
  const std::int64_t channels = c.in_channels / c.groups, first = co / (c.out_channels / c.groups) * channels;
  float sum = 0.0f;
  for (std::int64_t ci = 0; ci < channels; ++ci)
    for (std::int64_t ky = 0; ky < c.kernel[0]; ++ky) {
      const std::int64_t y = oy * c.stride[0] - c.before[0] + ky * c.dilation[0];
      if (y < 0 || y >= c.size[0]) continue;
      for (std::int64_t kx = 0; kx < c.kernel[1]; ++kx) {
        const std::int64_t at = ox * c.stride[1] - c.before[1] + kx * c.dilation[1];
        if (at < 0 || at >= c.size[1]) continue;
        sum += x[((n * c.in_channels + first + ci) * c.size[0] + y) * c.size[1] + at] *
               w[((co * channels + ci) * c.kernel[0] + ky) * c.kernel[1] + kx];
      }
    }
  return sum;
}

void conv(Call& call) {
  const Convolution c = convolution_of(call);
  const std::vector<float> bias = bias_of(call, 2, c.out_channels);
  Shape shape = call.in(0).shape;
  shape[1] = c.out_channels;
  if (shape.size() == 4) shape[2] = c.out[0];
  shape.back() = c.out[1];
  if (call.step.weight) {
    if (c.stride[0] != 1 || c.stride[1] != 1 || c.out[0] != c.size[0] || c.out[1] != c.size[1])
      call.refuse("a kernel of one element with strides or padding is not supported");
    return convolve_points(call, c, bias, call.make(shape));
  }
  const Floats x(call.run, call.in(0)), w(call.run, call.in(1));
  const Tensor& out = call.make(shape);
  FloatResult result(call.run, out);
  const std::int64_t points = c.out[0] * c.out[1];
  in_pieces(call.run, c.batch * c.out_channels, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t p = 0; p < points; ++p) {
        const std::int64_t co = i % c.out_channels;
        result.data()[i * points + p] =
            convolve_at(c, x.data(), w.data(), i / c.out_channels, co, p / c.out[1], p % c.out[1]) +
            (bias.empty() ? 0.0f : bias[static_cast<std::size_t>(co)]);
      }
  });
  result.store();
}

// ---- einsum of two tensors

Tensor with_axes(Call& call, const Tensor& x, std::string_view labels, std::string_view wanted) {
  Shape shape, steps;
  const Shape from = steps_of(x.shape);
  for (const char label : wanted) {
    const auto axis = labels.find(label);
    shape.push_back(x.shape[axis]);
    steps.push_back(from[axis]);
  }
  Tensor result = call.run.tensors.take(x.dtype, shape);
  copy_strided(call.run, x, 0, shape, steps, result);
  return result;
}

std::int64_t size_of(const Tensor& x, std::string_view labels, std::string_view wanted) {
  std::int64_t size = 1;
  for (const char label : wanted) size *= x.shape[labels.find(label)];
  return size;
}

void einsum(Call& call) {
  std::string text;
  for (const char c : call.text(1, ""))
    if (c != ' ') text += c;
  const auto comma = text.find(','), arrow = text.find("->");
  if (call.count(0) != 2 || comma == std::string::npos || arrow == std::string::npos || arrow < comma)
    call.refuse(cat("equation ", quoted(text), "; products of two tensors are known"));
  const std::string a = text.substr(0, comma), b = text.substr(comma + 1, arrow - comma - 1),
                    out = text.substr(arrow + 2);
  const Tensor x = call.in(0, 0), y = call.in(0, 1);
  const auto once = [](std::string labels) {
    std::sort(labels.begin(), labels.end());
    return std::adjacent_find(labels.begin(), labels.end()) == labels.end();
  };
  if (a.size() != x.shape.size() || b.size() != y.shape.size() || !once(a) || !once(b) || !once(out))
    call.refuse(cat("equation ", quoted(text), " for shapes ", text_of(x.shape), " and ", text_of(y.shape)));
  std::string batch, rows, columns, summed;
  for (const char label : a) {
    const bool in_b = b.find(label) != std::string::npos, in_out = out.find(label) != std::string::npos;
    if (!in_b && !in_out) call.refuse(cat("equation ", quoted(text), ": a sum over '", label, "' alone"));
    (in_b ? in_out ? batch : summed : rows) += label;
    if (in_b && x.shape[a.find(label)] != y.shape[b.find(label)])
      call.refuse(cat("equation ", quoted(text), ": sizes of '", label, "' differ"));
  }
  for (const char label : b)
    if (a.find(label) == std::string::npos) columns += label;
  const std::string made = batch + rows + columns;
  for (const char label : columns)
    if (out.find(label) == std::string::npos)
      call.refuse(cat("equation ", quoted(text), ": a sum over '", label, "' alone"));
  if (made.size() != out.size())
    call.refuse(cat("equation ", quoted(text), ": the result names other axes than the values"));
  Tensor left = with_axes(call, x, a, batch + rows + summed),
         right = with_axes(call, y, b, batch + columns + summed);
  const Shape parts = left.shape, other = right.shape;
  const std::int64_t batches = size_of(x, a, batch), k = size_of(x, a, summed);
  left.shape = {batches, size_of(x, a, rows), k};
  right.shape = {batches, size_of(y, b, columns), k};
  Tensor result = multiplied(call, left, right, false, true);
  result.shape.assign(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(batch.size() + rows.size()));
  result.shape.insert(result.shape.end(), other.begin() + static_cast<std::ptrdiff_t>(batch.size()),
                      other.begin() + static_cast<std::ptrdiff_t>(batch.size() + columns.size()));
  call.give(with_axes(call, result, made, out));
}

}  // namespace
}  // namespace products

OperationRows linear_operations() {
  using namespace products;
  return {
      operation("linear", {"x", "weight#", "bias?"}, linear),
      operation("matmul", {"x", "y#", "transpose_x?", "transpose_y?"}, matmul),
      operation("conv", {"x", "weight#", "bias?", "strides?", "pad_type?", "pad?", "dilations?", "groups?"},
                conv),
      operation("einsum", {"values*", "equation"}, einsum)};
}

}  // namespace kvtide::coreml
