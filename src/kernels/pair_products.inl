// pair_products.inl: sums of products of pairs of numbers, of several queries and several rows at once. Pairs are of bf16
// numbers, whose sums are Lanes, or of whole ones, whose sums are Ints. Included once by attend_pairs.inl after the lanes.
//
// A product of bf16 pairs is one instruction, or two steps that take a float each (kPairWords = 2): then both numbers of a
// query's pair lie ready as floats, and those of a row are taken apart once for all queries. The bits are the same.
namespace kvtide {
namespace {

// Words of a pair of a query (kPairWords): the pair, or its first number as a float and, `half` words on, its second. That
// is half of a query's words.
inline void store_pairs(std::uint32_t* out, [[maybe_unused]] int half, Pairs a) {
  if constexpr (kPairWords == 1) {
    store(out, a);
  } else {
    store(reinterpret_cast<float*>(out), first_of_pairs(a));
    store(reinterpret_cast<float*>(out + half), second_of_pairs(a));
  }
}

// sum[i][v] + the product of a pair of each query, which are `stride` words apart, and each row.
template <int Q, int V>
inline void add_products(Lanes (&sum)[Q][V], const std::uint32_t* query, int stride, const Pairs (&row)[V]) {
  if constexpr (kPairWords == 1) {
    for (int i = 0; i < Q; ++i)
      for (int v = 0; v < V; ++v) sum[i][v] = dot_pairs(sum[i][v], query[i * stride], row[v]);
  } else {
    const auto add_step = [&](const std::uint32_t* numbers, auto number_of_pairs) {
      Lanes number[V];
      for (int v = 0; v < V; ++v) number[v] = number_of_pairs(row[v]);
      for (int i = 0; i < Q; ++i) {
        const Lanes one = set1(__builtin_bit_cast(float, numbers[i * stride]));
        for (int v = 0; v < V; ++v) sum[i][v] = fma(one, number[v], sum[i][v]);
      }
    };
    add_step(query + stride / kPairWords, [](Pairs a) { return second_of_pairs(a); });
    add_step(query, [](Pairs a) { return first_of_pairs(a); });
  }
}
template <int Q, int V>
inline void add_products(Ints (&sum)[Q][V], const std::uint32_t* query, int stride, const Pairs (&row)[V]) {
  for (int i = 0; i < Q; ++i)
    for (int v = 0; v < V; ++v) sum[i][v] = dot_pairs(sum[i][v], query[i * stride], row[v]);
}

// C[i][v] = sum over pairs of query[i] times rows[v]: rows are `stride` pairs apart, queries `query_stride` words.
template <int Q, int V, class Sum>
inline void multiply(const std::uint32_t* query, int query_stride, const std::uint32_t* rows, int stride,
                     int pairs, Sum (&sum)[Q][V]) {
  for (int i = 0; i < Q; ++i)
    for (int v = 0; v < V; ++v) sum[i][v] = Sum{};
  for (int p = 0; p < pairs; ++p) {
    Pairs row[V];
    for (int v = 0; v < V; ++v) row[v] = load(rows + p * stride + v * kLanes);
    add_products(sum, query + p, query_stride, row);
  }
}

// Runs body<Q>(first query) over all queries, Most at a time.
template <int Q, class Body>
inline void rest_of_queries(int first, int left, Body body) {
  if (left == Q)
    body.template operator()<Q>(first);
  else if constexpr (Q > 1)
    rest_of_queries<Q - 1>(first, left, body);
}
template <int Most, class Body>
inline void each_query(int count, Body body) {
  int i = 0;
  for (; i + Most <= count; i += Most) body.template operator()<Most>(i);
  if constexpr (Most > 1)
    if (i < count) rest_of_queries<Most - 1>(i, count - i, body);
}
// Runs body<V>(first vector) over vectors [first, last), at most Most at a time.
template <int Most = kPairVectors, class Body>
inline void each_vector(int first, int last, Body body) {
  for (; first + Most <= last; first += Most) body.template operator()<Most>(first);
  for (; first < last; ++first) body.template operator()<1>(first);
}

}  // namespace
}  // namespace kvtide
