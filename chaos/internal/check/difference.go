package check

// difference counts how often one side has more or less of a key than the other.
type difference[K comparable] struct {
	counts map[K]int
	keys   []K // in the order in which they were added
}

func newDifference[K comparable]() *difference[K] { return &difference[K]{counts: map[K]int{}} }

func (d *difference[K]) add(key K, n int) {
	if _, ok := d.counts[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.counts[key] += n
}

// each calls differs for each key of which the sides have different numbers.
func (d *difference[K]) each(differs func(key K, n int)) {
	for _, key := range d.keys {
		if n := d.counts[key]; n != 0 {
			differs(key, n)
		}
	}
}
