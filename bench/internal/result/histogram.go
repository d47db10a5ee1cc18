package result

import (
	"math"
	"math/bits"
	"time"
)

// subBuckets is how many buckets each power of two has: a percentile is off by 3% at most.
const subBuckets = 32

// Histogram counts durations. Its size doesn't depend on how many; the zero value is empty.
type Histogram struct {
	Counts []int64       `json:",omitempty"`
	Sum    time.Duration `json:",omitempty"`
	Max    time.Duration `json:",omitempty"`
}

// NewHistogram returns an empty histogram that Add won't have to grow.
func NewHistogram() Histogram {
	return Histogram{Counts: make([]int64, bucketOf(time.Hour)+1)}
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	i := bucketOf(d)
	if i >= len(h.Counts) {
		h.Counts = append(h.Counts, make([]int64, i+1-len(h.Counts))...)
	}
	h.Counts[i]++
	h.Sum += d
	h.Max = max(h.Max, d)
}

// Merge adds what other has counted.
func (h *Histogram) Merge(other Histogram) {
	if missing := len(other.Counts) - len(h.Counts); missing > 0 {
		h.Counts = append(h.Counts, make([]int64, missing)...)
	}
	for i, n := range other.Counts {
		h.Counts[i] += n
	}
	h.Sum += other.Sum
	h.Max = max(h.Max, other.Max)
}

// Count is how many durations were added.
func (h *Histogram) Count() (n int64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Mean is 0 without durations.
func (h *Histogram) Mean() time.Duration {
	if n := h.Count(); n > 0 {
		return h.Sum / time.Duration(n)
	}
	return 0
}

// Percentile returns a duration that p percent of those added don't exceed, to within the
// width of a bucket; 0 without durations.
func (h *Histogram) Percentile(p float64) time.Duration {
	rank := int64(math.Ceil(p / 100 * float64(h.Count())))
	var seen int64
	for i, n := range h.Counts {
		if seen += n; n > 0 && seen >= rank {
			return min(endOf(i), h.Max)
		}
	}
	return 0
}

// bucketOf is d itself below subBuckets; above, the exponent of d and its next five bits.
func bucketOf(d time.Duration) int {
	if d < subBuckets {
		return int(d)
	}
	shift := bits.Len64(uint64(d)) - 6
	return (shift+1)*subBuckets + int(d>>shift) - subBuckets
}

// endOf is the largest duration of a bucket.
func endOf(bucket int) time.Duration {
	if bucket < subBuckets {
		return time.Duration(bucket)
	}
	shift := bucket/subBuckets - 1
	return time.Duration(bucket%subBuckets+subBuckets+1)<<shift - 1
}
