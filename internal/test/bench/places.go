package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/internal/test/bench/internal/report"
	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
	benchrun "github.com/fencekit/fencekit/internal/test/bench/internal/run"
	"github.com/fencekit/fencekit/internal/test/bench/internal/scenario"
)

func runAll(ctx context.Context, c config) error {
	if len(c.scenarios()) == 0 {
		var names []string
		for _, s := range scenario.All() {
			names = append(names, s.Name)
		}
		return fmt.Errorf("bench: no scenario matches -run; there are %s", strings.Join(names, ", "))
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	found := result.Run{Began: time.Now(), Machine: thisMachine(), Commit: commit(ctx), Rounds: c.Rounds, Seconds: c.Seconds}
	var errs []error
	for _, place := range c.places {
		part, err := inPlace(ctx, c, place)
		found.Merge(part)
		errs = append(errs, err)
	}
	if len(found.Cells) > 0 {
		errs = append(errs, write(c.out, &found))
	}
	return errors.Join(errs...)
}

// inPlace runs one place, which TMPDIR is meanwhile: there the servers have their data.
func inPlace(ctx context.Context, c config, place string) (found result.Run, err error) {
	dir := c.dirs[place]
	if err := checkPlace(place, dir); err != nil {
		return found, err
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return found, err
	}
	found, err = benchrun.Place(ctx, c.Config, place, c.latencies, c.scenarios())
	if err != nil {
		err = fmt.Errorf("bench: %s: %w", place, err)
	}
	return found, err
}

// checkPlace fails if a directory isn't of the kind that its place is called.
func checkPlace(place, dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("bench: %s: %w", dir, err)
	}
	const inMemory = 0x01021994 // TMPFS_MAGIC of statfs(2)
	if is := int64(fs.Type) == inMemory; is != (place == result.Tmpfs) {
		return fmt.Errorf("bench: %s is no directory for %s: choose one with -%s", dir, place, place)
	}
	return nil
}

func write(dir string, found *result.Run) error {
	raw, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		return err
	}
	var table strings.Builder
	if err := report.Markdown(&table, found, scenario.All()); err != nil {
		return err
	}
	fmt.Print(table.String())
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "results.json"), raw, 0o644),
		os.WriteFile(filepath.Join(dir, "results.markdown"), []byte(table.String()), 0o644),
	)
	if err == nil {
		fmt.Fprintf(os.Stderr, "\nwritten: results.markdown and results.json in %s\n", dir)
	}
	return err
}

func thisMachine() string {
	var name unix.Utsname
	system := runtime.GOOS
	if err := unix.Uname(&name); err == nil {
		system = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
	return fmt.Sprintf("%d CPUs, %s, %s", runtime.NumCPU(), system, runtime.Version())
}

// commit is that of the working directory, with a mark if it has changes.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
