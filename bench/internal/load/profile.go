package load

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
)

// profile writes a CPU profile of this process to Spec.Profile until the returned function
// is called. Without that directory it does nothing.
func profile(s Spec) (stop func() error, err error) {
	if s.Profile == "" {
		return func() error { return nil }, nil
	}
	name := strings.NewReplacer("/", "-", " ", "_", ",", "").Replace(fmt.Sprintf("%s-%s-%s-%d", s.Cell, s.Scenario, s.Contender, s.Process))
	file, err := os.Create(filepath.Join(s.Profile, name+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() error { pprof.StopCPUProfile(); return file.Close() }, nil
}
