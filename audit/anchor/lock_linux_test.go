package anchor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

// A log that was closed isn't in use, also while a child process that is being started still has
// its descriptor.
func TestClose_UnlocksAFileThatAChildStillHas(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	log, err := anchor.Open(s.path, s.signer)
	require.NoError(t, err)
	child.Inherit(t, s.path)
	_, err = anchor.Open(s.path, s.signer)
	require.ErrorIs(t, err, anchor.ErrInUse)
	require.NoError(t, log.Close())
	log, err = anchor.Open(s.path, s.signer)
	require.NoError(t, err)
	require.NoError(t, log.Close())
}
