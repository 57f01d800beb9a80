// A vector of floats as wide as the machine the file is compiled for, and the few operations the kernels need.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__SSE__) || defined(__AVX__)
#include <immintrin.h>
#endif

namespace weftc {

#if defined(__AVX512F__)
constexpr int W = 16, POINTS = 4, KEYS = 6;  // 24 sums in 32 registers
#elif defined(__AVX__)
constexpr int W = 8, POINTS = 2, KEYS = 6;  // 12 sums in 16 registers
#else
constexpr int W = 4, POINTS = 2, KEYS = 4;
#endif
constexpr int TILE = 64;  // queries whose features are held together; a multiple of W * POINTS

// Numbers that start at a line of the cache, so that no vector lies in two: such ones cost several times as much.
template <class Number>
class Lines {
 public:
  explicit Lines(size_t count) : lines_((count * sizeof(Number) + sizeof(Line) - 1) / sizeof(Line)) {}
  Number* data() { return (Number*)lines_.data(); }
  Number& operator[](size_t at) { return data()[at]; }

 private:
  struct alignas(64) Line {
    char bytes[64] = {};
  };
  std::vector<Line> lines_;
};

typedef float Floats __attribute__((vector_size(4 * W)));
typedef int32_t Ints __attribute__((vector_size(4 * W)));

static inline Floats load(const float* at) {
  Floats v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
static inline void store(float* at, Floats v) { std::memcpy(at, &v, sizeof v); }
static inline Ints load(const int32_t* at) {
  Ints v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
static inline void store(int32_t* at, Ints v) { std::memcpy(at, &v, sizeof v); }
static inline Ints every(int32_t x) { return Ints{} + x; }
static inline Floats number(Ints v) { return __builtin_convertvector(v, Floats); }
static inline Ints least(Ints a, Ints b) { return a < b ? a : b; }
static inline Ints most(Ints a, Ints b) { return a > b ? a : b; }
static inline bool any(Ints v) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)v, (__m512i)v);
#endif
  int32_t found = 0;
  for (int i = 0; i < W; i++) found |= v[i];
  return found;
}

// The name of a key in the lowest bits of its score.
constexpr int NAME_BITS = 10;
constexpr int32_t NAMES = (1 << NAME_BITS) - 1;
static inline Ints named(Ints score, Ints name) {
#if defined(__AVX512F__)
  return (Ints)_mm512_ternarylogic_epi32((__m512i)score, (__m512i)every(NAMES), (__m512i)name, 0xBA);
#else
  return (score & ~NAMES) | name;
#endif
}

// Sums of two products of 16 bits each, where the machine has them; a value that is not to be loaded anew.
#if defined(__AVX512F__) ? defined(__AVX512BW__) : defined(__AVX__) ? defined(__AVX2__) : defined(__SSE2__)
#define WEFTC_SHORTS 1
#if defined(__AVX512F__)
static inline Ints products(Ints a, Ints b) { return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
static inline Ints products(Ints a, Ints b) { return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
#else
static inline Ints products(Ints a, Ints b) { return (Ints)_mm_madd_epi16((__m128i)a, (__m128i)b); }
#endif
// sum += products of a and b, without a copy of the sum.
static inline void add_products(Ints& sum, Ints a, Ints b) {
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
  asm("vpdpwssd %1, %2, %0" : "+v"(sum) : "v"(b), "v"(a));
#elif defined(__AVXVNNI__) && defined(__AVX2__)
  asm("{vex} vpdpwssd %1, %2, %0" : "+x"(sum) : "x"(b), "x"(a));
#elif defined(__AVX512F__)
  const Ints both = products(a, b);
  asm("vpaddd %1, %0, %0" : "+v"(sum) : "v"(both));
#elif defined(__AVX2__)
  const Ints both = products(a, b);
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(both));
#else
  sum += products(a, b);
#endif
}
static inline void in_register(Ints& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#else
  asm("" : "+x"(v));
#endif
}
#else
#define WEFTC_SHORTS 0
#endif

#if defined(__AVX512F__)
static inline Floats every(float x) { return (Floats)_mm512_set1_ps(x); }
static inline Floats root(Floats a) { return (Floats)_mm512_sqrt_ps((__m512)a); }
static inline Floats least(Floats a, Floats b) { return (Floats)_mm512_min_ps((__m512)a, (__m512)b); }
static inline Floats most(Floats a, Floats b) { return (Floats)_mm512_max_ps((__m512)a, (__m512)b); }
#elif defined(__AVX__)
static inline Floats every(float x) { return (Floats)_mm256_set1_ps(x); }
static inline Floats root(Floats a) { return (Floats)_mm256_sqrt_ps((__m256)a); }
static inline Floats least(Floats a, Floats b) { return (Floats)_mm256_min_ps((__m256)a, (__m256)b); }
static inline Floats most(Floats a, Floats b) { return (Floats)_mm256_max_ps((__m256)a, (__m256)b); }
#else
static inline Floats every(float x) { return Floats{x, x, x, x}; }
static inline Floats root(Floats a) { return Floats{sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
static inline Floats least(Floats a, Floats b) { return a < b ? a : b; }
static inline Floats most(Floats a, Floats b) { return a > b ? a : b; }
#endif

// Rows (TILE, width), `width` a multiple of 4 -> columns (width, TILE).
static inline void transpose(const float* rows, int width, float* columns) {
  for (int p = 0; p < TILE; p += 4) {
    const float* row = rows + (long)p * width;
    for (int f = 0; f < width; f += 4) {
      float* out = columns + (long)f * TILE + p;
#if defined(__SSE__)
      __m128 a = _mm_loadu_ps(row + f), b = _mm_loadu_ps(row + width + f);
      __m128 c = _mm_loadu_ps(row + 2 * width + f), d = _mm_loadu_ps(row + 3 * width + f);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(out, a);
      _mm_storeu_ps(out + TILE, b);
      _mm_storeu_ps(out + 2 * TILE, c);
      _mm_storeu_ps(out + 3 * TILE, d);
#else
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) out[(long)i * TILE + j] = row[(long)j * width + f + i];
#endif
    }
  }
}

}  // namespace weftc
