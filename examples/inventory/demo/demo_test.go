package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/storage"
)

// The demo starts its own binary as workers: in a test that is the test's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(Work(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "orphan" {
		orphan()
	}
	testenv.Main(m)
}

// orphan has a worker that is stopped, names it, and waits for its own end.
func orphan() {
	w, err := StartWorker(context.Background(), WorkerConfig{})
	if err == nil {
		err = w.process.Pause()
	}
	fmt.Println(w.process.Pid(), err)
	select {}
}

func TestWorker_DiesWithItsParentEvenIfItIsStopped(t *testing.T) {
	t.Parallel()
	alive, end, err := os.Pipe() // which both have
	require.NoError(t, err)
	defer alive.Close()
	parent := exec.Command(os.Args[0], "orphan")
	parent.Stderr = end
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	require.NoError(t, end.Close())
	var pid int
	var failed string
	_, err = fmt.Fscanln(out, &pid, &failed)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	require.Equal(t, "<nil>", failed)

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.NoError(t, alive.SetReadDeadline(time.Now().Add(time.Minute))) // only a hang takes as long
	_, err = io.ReadAll(alive)
	require.NoError(t, err, "it outlived its parent")
}

func TestDemo_FenceHoldsAndControlOversells(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, Run(t.Context(), &out), out.String())
	require.Contains(t, out.String(), "REJECTED by Postgres")
	require.Contains(t, out.String(), "sold exactly 100; the lock alone oversold by 12")
}

// sold is what there is to read when so many units are reserved.
func sold(quantity int) service.Stock { return service.Stock{OnHand: 100, Reserved: quantity} }

func TestVerdict_IsAsStrictAsItSays(t *testing.T) {
	good := result{stock: sold(100), rejections: []storage.Rejection{{Count: 1}}}
	control := result{stock: sold(112)}
	require.NoError(t, verdict(&bytes.Buffer{}, good, control))
	for name, c := range map[string]struct {
		fenced, control result
		want            error
	}{
		"the fence oversold":     {result{sold(101), good.rejections}, control, ErrViolated},
		"not everything sold":    {result{sold(99), good.rejections}, control, ErrInconclusive},
		"none rejected":          {result{sold(100), nil}, control, ErrInconclusive},
		"the control didn't":     {good, result{stock: sold(100)}, ErrInconclusive},
		"both sold out, no harm": {result{sold(100), nil}, result{stock: sold(100)}, ErrInconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			err := verdict(&bytes.Buffer{}, c.fenced, c.control)
			require.ErrorIs(t, err, c.want)
		})
	}
}
