package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv"
)

// Reexec must be the first call of every main() whose binary runs workloads. In a child
// that was started as a worker, or as a server, it runs that and never returns. A worker can
// run these workloads, and the built-in one.
func Reexec(workloads ...workload.Workload) {
	testenv.Reexec()
	if text := os.Getenv(SpecVariable); text != "" {
		os.Exit(runWorker(text, append([]workload.Workload{stock.Stock{}}, workloads...)))
	}
}

// runWorker is a worker's whole main. It returns the exit code.
func runWorker(text string, workloads []workload.Workload) int {
	w := &worker{history: history.NewRecorder(os.Stdout)}
	os.Stdout = os.Stderr // what a workload prints doesn't belong in the history
	commands := os.Stdin
	os.Stdin, _ = os.Open(os.DevNull) // a workload must not read commands
	err := json.Unmarshal([]byte(text), &w.spec)
	if err == nil {
		w.workload, err = find(workloads, w.spec.Workload)
	}
	if w.spec.Processors > 0 {
		runtime.GOMAXPROCS(w.spec.Processors)
	}
	if err == nil {
		err = w.work(commands)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: worker:", err)
		return exitWorker
	}
	return 0
}

func find(workloads []workload.Workload, name string) (workload.Workload, error) {
	for _, w := range workloads {
		if w.Name() == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("%w: this binary has no workload %q: give it to chaos.Main or chaos.Reexec", workload.ErrConfig, name)
}
