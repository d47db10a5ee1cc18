package class_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/class"
)

func TestSet_ClassIsThePartBeforeTheFirstSlash(t *testing.T) {
	t.Parallel()
	s := class.NewSet(10)
	for resource, want := range map[string]string{"sku/42": "sku", "sku/a/b": "sku", "nightly": "nightly", "/etc": "/", "/": "/"} {
		got, _ := s.Of(resource)
		require.Equal(t, want, got, resource)
	}
}

func TestSet_HasNoMoreClassesThanItsLimit(t *testing.T) {
	t.Parallel()
	s, classes := class.NewSet(3), map[string]int{}
	for i := range 100_000 {
		of, _ := s.Of(fmt.Sprint("job-", i))
		classes[of]++
	}
	require.Equal(t, map[string]int{"job-0": 1, "job-1": 1, "job-2": 1, class.Other: 99_997}, classes)
	known, fresh := s.Of("job-1")
	require.Equal(t, "job-1", known, "a class stays what it is")
	require.False(t, fresh)
}

func TestSet_EachClassIsFreshOnce(t *testing.T) {
	t.Parallel()
	resources := []string{"a/1", "other/1", "b/1", "c/1", "d/1"} // other is a class of resources, too
	for limit, want := range map[int]int64{1: 2, 2: 2, 3: 3, 5: 5} {
		s := class.NewSet(limit)
		var fresh atomic.Int64
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
				for _, resource := range resources {
					if _, first := s.Of(resource); first {
						fresh.Add(1)
					}
				}
			})
		}
		asking.Wait()
		require.Equal(t, want, fresh.Load(), "limit %d", limit)
	}
}
