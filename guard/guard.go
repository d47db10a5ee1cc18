package guard

import (
	"fmt"
	"reflect"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Guard runs operations that nobody with an older grant can interfere with. Use
// New. All methods, and the functions that take a Guard, may be called from
// several goroutines.
//
// Calls for one resource run one after another, in order of arrival, also across
// processes that share the lock service. Calls for different resources don't wait
// for each other. Each call runs on its caller's goroutine.
type Guard[Tx any] struct {
	engine[Tx]
	keeper *keeper
}

// New returns a Guard that locks with locker and writes through store. It closes
// neither. Close the Guard before them. It fails with ErrInvalid if an argument
// is nil, also in the form of a nil pointer, or cfg is out of bounds.
func New[Tx any](locker fence.Locker, store storage.Store[Tx], cfg *Config) (*Guard[Tx], error) {
	if isNil(locker) || isNil(store) {
		return nil, fmt.Errorf("%w: New needs a locker and a store", ErrInvalid)
	}
	filled := cfg.withDefaults()
	if err := filled.validate(); err != nil {
		return nil, err
	}
	k := newKeeper(locker, filled)
	return &Guard[Tx]{engine: newEngine(store, filled, k.report, k.killed), keeper: k}, nil
}

// isNil reports whether v, an interface value, is nil or holds a nil pointer.
func isNil(v any) bool {
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}
