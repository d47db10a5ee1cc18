package testenv

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
)

// StartPostgres starts a Postgres server.
func StartPostgres(ctx context.Context, cfg *PostgresConfig) (*Postgres, error) {
	var c PostgresConfig
	if cfg != nil {
		c = *cfg
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		return nil, err
	}
	p, err := startLocalPostgres(ctx, binaries{filepath.Dir(path), strings.Fields(string(version))[2]}, c)
	if err != nil {
		return nil, err
	}
	announce("Postgres", p.source)
	return p, nil
}
