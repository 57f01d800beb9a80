// Random fields where they are read: Philox4x32-10, 64 tokens of a column at a time.
//
// The counter and the bits are those of data/noise.py, which defines the fields. Uniform numbers have its bits. Logarithms
// of Gumbel numbers may differ from NumPy's in the last places: by less than 2^-46 of the number and 2^-44, which whoever
// compares them takes into account.

#include "soft.h"

namespace weftc {
namespace {

constexpr uint64_t LOW = 0xFFFFFFFF;

typedef uint64_t EightBits __attribute__((vector_size(64)));

// Products of the lower halves.
inline EightBits times(EightBits a, uint64_t by) {
#if defined(__AVX512F__)
  return (EightBits)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64((long long)by));
#else
  return (a & LOW) * by;
#endif
}

inline Eight converted(EightBits whole) {  // below 2^53
  const EightBits high = (whole >> 32) | 0x4530000000000000ull, low = (whole & LOW) | 0x4330000000000000ull;
  return ((Eight)high - 0x1.00000001p84) + (Eight)low;
}

}  // namespace

// kind: 1 Gumbel, 2 uniform.
void draw(int32_t kind, uint64_t seed, int64_t name, int64_t layer, const Block& block, int32_t column, double* out) {
  alignas(64) uint64_t tokens[LANES];
  for (int e = 0; e < LANES; e++) tokens[e] = (uint64_t)block.token(e);
  for (int i = 0; i < block.lanes() / 8; i++) {
    EightBits c0, c1 = EightBits{} + (uint64_t)column, c2 = EightBits{} + (uint64_t)(layer & LOW), c3 = EightBits{} + (uint64_t)name;
    std::memcpy(&c0, tokens + 8 * i, sizeof c0);
    uint64_t key0 = seed & LOW, key1 = seed >> 32;
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
      const EightBits left = times(c0, 0xD2511F53), right = times(c2, 0xCD9E8D57);
      c0 = (right >> 32) ^ c1 ^ key0, c1 = right & LOW;
      c2 = (left >> 32) ^ c3 ^ key1, c3 = left & LOW;
      key0 = (key0 + 0x9E3779B9) & LOW, key1 = (key1 + 0xBB67AE85) & LOW;
    }
    const EightBits cell = ((c0 << 32) | c1) >> 11;
    const Eight middle = converted(cell) * 0x1p-53 + 0x1p-54, last = every(1 - 0x1p-53);
    const Eight u = middle < last ? middle : last;
    const Eight found = kind == 2 ? u : -logs(-logs(u));
    std::memcpy(out + 8 * i, &found, sizeof found);
  }
  block.fill_up(out);
}

}  // namespace weftc
