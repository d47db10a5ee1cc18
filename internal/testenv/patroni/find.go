package patroni

import (
	"context"
	"regexp"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

var installedPatroni = process.Installed{
	Server:  "Patroni",
	Places:  []string{"patroni", "/usr/bin/patroni", "/usr/local/bin/patroni"},
	Version: regexp.MustCompile(`^patroni (\d\S*)`),
	Advice:  "sudo apt-get install patroni | sudo dnf install patroni patroni-etcd | pipx install 'patroni[etcd3,psycopg3]'",
}

// installedHAProxy is HAProxy where packages put it: Debian's place is not on an ordinary
// user's PATH.
var installedHAProxy = process.Installed{
	Server:    "HAProxy",
	Places:    []string{"haproxy", "/usr/sbin/haproxy", "/opt/homebrew/bin/haproxy"},
	Arguments: []string{"-v"},
	Version:   regexp.MustCompile(`^HAProxy version (\d[^\s-]*)`),
	Advice:    "sudo apt-get install haproxy | sudo dnf install haproxy | brew install haproxy",
}

// FindPatroni returns the path and the version, as "3.0.2", of the Patroni that Start runs.
// It fails with *process.NotFoundError if there is none.
func FindPatroni(ctx context.Context) (path, version string, err error) {
	return installedPatroni.Find(ctx)
}

// FindHAProxy is FindPatroni for HAProxy.
func FindHAProxy(ctx context.Context) (path, version string, err error) {
	return installedHAProxy.Find(ctx)
}

// programs are what a cluster runs.
type programs struct {
	account                    *process.Account
	patroni, haproxy, postgres string // of Postgres, the directory
	versions                   [3]string
}

func findPrograms(ctx context.Context) (p programs, err error) {
	if p.patroni, p.versions[0], err = FindPatroni(ctx); err != nil {
		return p, err
	}
	if p.haproxy, p.versions[1], err = FindHAProxy(ctx); err != nil {
		return p, err
	}
	if p.postgres, p.versions[2], err = pgserver.FindBinaries(ctx); err != nil {
		return p, err
	}
	p.account, err = process.ServerAccount() // Patroni runs as the user that Postgres runs as
	return p, err
}
