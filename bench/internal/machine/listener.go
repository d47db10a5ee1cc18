package machine

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listener returns the process that listens on an IPv4 address of this machine, as
// 127.0.0.1:5432.
func Listener(address string) (pid int, err error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, fmt.Errorf("machine: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return 0, fmt.Errorf("machine: %s: %w", address, err)
	}
	sockets, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	socket := listeningSocket(string(sockets), number)
	owners, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	// Children may have inherited the socket: the first process is the one whose parent
	// doesn't have it.
	found := map[int]bool{}
	for _, fd := range owners {
		if target, err := os.Readlink(fd); err == nil && socket != "" && target == "socket:["+socket+"]" {
			owner, _ := strconv.Atoi(strings.Split(fd, "/")[2]) // the pattern has digits there
			found[owner] = true
		}
	}
	all, err := processes()
	if err != nil {
		return 0, err
	}
	for owner := range found {
		if !found[all[owner].parent] {
			return owner, nil
		}
	}
	return 0, fmt.Errorf("machine: no process of this user's listens on %s", address)
}

// listeningSocket returns the inode of the socket that listens on a port, or "".
func listeningSocket(table string, port int) string {
	const listens = "0A"
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != listens {
			continue
		}
		if _, hex, _ := strings.Cut(fields[1], ":"); hex == fmt.Sprintf("%04X", port) {
			return fields[9]
		}
	}
	return ""
}
