package model

// set is a set of resources, or of the members of a group, counted from 0.
type set uint8

// setLists lists each set's elements in order.
var setLists = func() (lists [1 << maxOps][]int8) {
	for s := range lists {
		for n := range int8(maxOps) {
			if set(s).has(n) {
				lists[s] = append(lists[s], n)
			}
		}
	}
	return lists
}()

// only is the set of n alone.
func only(n int8) set { return 1 << n }

// upTo is the set of the first n.
func upTo(n int8) set { return 1<<n - 1 }

func (s set) has(n int8) bool    { return s&only(n) != 0 }
func (s set) without(of set) set { return s &^ of }
func (s set) list() []int8       { return setLists[s] }
func (s set) size() int8         { return int8(len(setLists[s])) }

// first is the set of the first element alone.
func (s set) first() set { return s & -s }

// number writes a set's elements as digits, from 1: 12 is the first and the second.
func (s set) number() (n int8) {
	for _, i := range s.list() {
		n = 10*n + i + 1
	}
	return n
}
