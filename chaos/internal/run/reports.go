package run

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/report"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// writeReports writes the report of a suite, and its JUnit XML for CI systems.
func writeReports(dir string, suite *result.Suite) error {
	return errors.Join(
		writeFile(filepath.Join(dir, result.ReportFile), func(w io.Writer) error {
			return report.HTML(w, suite, func(run *result.Run) ([]history.Event, *observe.Observation, error) { return result.Load(dir, run) })
		}),
		writeFile(filepath.Join(dir, result.JUnitFile), func(w io.Writer) error { return result.JUnit(w, suite) }))
}

func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}
