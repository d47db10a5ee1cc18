package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/storage"
)

// kept is what was kept under a key, for as long as the Store lasts.
type kept struct {
	request [32]byte
	result  []byte
}

// Recall implements storage.Store.
func (s *Store) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) (result []byte, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("memory: recall: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.validate(claims); err != nil {
		return nil, false, err
	}
	reused := error(nil)
	for _, c := range claims {
		k, ok := s.resources[c.Resource-1].kept[key.Key]
		if !ok {
			continue
		}
		if k.request != key.Request {
			reused = &storage.KeyReusedError{Resource: c.Grant.Resource, Key: key.Key}
		}
		result, found = slices.Clone(k.result), true
	}
	if !found {
		return nil, false, nil
	}
	if err := cmp.Or(s.check(claims, storage.StageBegin), reused); err != nil {
		return nil, false, err
	}
	return result, true, nil
}
