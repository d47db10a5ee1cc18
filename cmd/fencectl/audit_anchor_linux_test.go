package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

// onASmallDisk runs a command, with the log on a disk of 16 kB that is full before all is
// written, and again when there is room. Then it saves what is on the disk.
const onASmallDisk = `
	disk=$0 saved=$1
	shift
	mount -t tmpfs -o size=16k tmpfs "$disk" || exit 99
	cp "$saved"/heads* "$disk"
	"$@"; echo "exit code $?"
	cp "$disk"/heads "$saved"/heads.full
	mount -o remount,size=1m "$disk"
	"$@"; echo "exit code $?"
	cp "$disk"/* "$saved"`

// A run whose disk fills up signs nothing. When there is room again the next one goes on.
func TestAuditAnchor_GoesOnAfterAFullDisk(t *testing.T) {
	t.Parallel()
	f := newAnchorFiles(t)
	write(t, f.dsn, "sku/1")
	first := f.anchor(t, "--print")
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("order/%d", i))
	}
	write(t, f.dsn, many...)

	saved, disk := filepath.Dir(f.log), t.TempDir()
	f.log = filepath.Join(disk, "heads")
	cmd := clitest.Child(t, nil)
	cmd.Args = append([]string{"sh", "-c", onASmallDisk, disk, saved, os.Args[0]}, f.args("--print")...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	require.Contains(t, stderr.String(), "no space left on device")
	full, last, _ := strings.Cut(string(stdout), "exit code 3\n")
	require.Empty(t, full)
	last, _, ended := strings.Cut(last, "exit code 0\n")
	require.True(t, ended, string(stdout))

	key, err := anchor.ParsePublicKey(string(read(t, f.key+".pub")))
	require.NoError(t, err)
	before, err := anchor.ParseCheckpoint(first.Stdout, key)
	require.NoError(t, err)
	after, err := anchor.ParseCheckpoint(last, key)
	require.NoError(t, err)
	_, err = anchor.ReadHeads(bytes.NewReader(read(t, filepath.Join(saved, "heads.full"))), before)
	require.NoError(t, err)
	heads, err := anchor.ReadHeads(bytes.NewReader(read(t, filepath.Join(saved, "heads"))), before, after)
	require.NoError(t, err)
	require.Len(t, heads, 101)
}
