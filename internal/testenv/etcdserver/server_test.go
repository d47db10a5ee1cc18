package etcdserver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStart_SaysWhatIsWrong(t *testing.T) {
	_, err := Start(t.Context(), &Config{ExtraFlags: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "no-such-flag")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Start(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
}
