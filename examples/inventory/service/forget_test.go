package service

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// forgetter fails every other time.
type forgetter struct{ calls int }

func (f *forgetter) ForgetOnce(context.Context) (int64, error) {
	if f.calls++; f.calls%2 == 1 {
		return 0, errors.New("away")
	}
	return 7, nil
}

func TestForgetOld_GoesOnHourlyAlsoAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f forgetter
		var log lockedBuffer
		stop := inBackground(t.Context(), func(ctx context.Context) {
			forgetOld(ctx, &f, forgetInterval, slog.New(slog.NewTextHandler(&log, nil)))
		})
		time.Sleep(4*time.Hour + time.Minute)
		synctest.Wait()
		stop()
		require.Equal(t, 4, f.calls)
		require.Contains(t, log.String(), "away")
		require.Contains(t, log.String(), "number=7")
	})
}
