package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/storage/postgres"
)

// epochs is what etcd and the databases say, in the order of the flags.
type epochs struct {
	etcd      []etcd.Epoch // Number 0: the key holds no epoch
	databases []postgres.Epoch
}

// read reads the databases before etcd, so that no token in a database is newer than etcd's
// revision.
func (e *epochFlags) read(ctx context.Context) (s epochs, err error) {
	s.databases, s.etcd = make([]postgres.Epoch, len(e.urls)), make([]etcd.Epoch, len(e.prefixes))
	err = e.withDatabases(ctx, func(ctx context.Context, i int, pool *pgxpool.Pool) (err error) {
		s.databases[i], err = postgres.ReadEpoch(ctx, pool, e.database.schema)
		return err
	})
	if err != nil {
		return s, err
	}
	err = e.withInspectors(ctx, func(ctx context.Context, i int, inspector *etcd.Inspector) (err error) {
		s.etcd[i], err = inspector.Epoch(ctx)
		if hasReason(err, fence.InvalidEpoch) {
			return nil
		}
		return err
	})
	return s, err
}

// highest returns the highest epoch of etcd and the one of the databases.
func (s epochs) highest() (inEtcd, inDatabases int64) {
	for _, e := range s.etcd {
		inEtcd = max(inEtcd, e.Number)
	}
	for _, d := range s.databases {
		inDatabases = max(inDatabases, d.Number)
	}
	return inEtcd, inDatabases
}

// accepted is the highest epoch that a claim in one of the databases may have.
func (s epochs) accepted() (highest int64) {
	for _, d := range s.databases {
		highest = max(highest, d.Number+d.MaxJump)
	}
	return highest
}

// unreadable reports whether a key of etcd holds no epoch.
func (s epochs) unreadable() bool {
	for _, e := range s.etcd {
		if e.Number == 0 {
			return true
		}
	}
	return false
}

// revision is etcd's.
func (s epochs) revision() (revision int64) {
	for _, e := range s.etcd {
		revision = max(revision, e.Revision)
	}
	return revision
}

// epochRow is a row of "epoch show" and "epoch bump".
type epochRow struct {
	Where     string      `json:"where"` // etcd's key or the database
	Epoch     int64       `json:"epoch"`
	Token     fence.Token `json:"highest_token,omitempty"` // in etcd its revision
	Resource  string      `json:"highest_resource,omitempty"`
	ClusterID string      `json:"cluster_id,omitempty"` // of etcd, in hexadecimal
	NoKey     bool        `json:"no_key,omitempty"`
	RaisedAt  *time.Time  `json:"raised_at,omitempty"`
	By        string      `json:"by,omitempty"`
	Reason    string      `json:"reason,omitempty"`
	Drift     string      `json:"drift,omitempty"`
}

func (epochRow) Columns() []string {
	return []string{"where", "epoch", "highest_token", "raised", "by", "reason", "drift"}
}

func (r epochRow) Cells() []string {
	number, token, raised := fmt.Sprint(r.Epoch), "", ""
	switch {
	case r.NoKey:
		number = "1 (no key)"
	case r.Epoch == 0:
		number = "none"
	}
	if r.Token > 0 {
		token = r.Token.String()
	}
	if r.RaisedAt != nil {
		raised = r.RaisedAt.Format(time.RFC3339)
	}
	where := r.Where
	if r.ClusterID != "" {
		where += " in cluster " + r.ClusterID
	}
	return []string{where, number, token, raised, r.By, r.Reason, r.Drift}
}

// rows shows the state. etcd's tokens are bounded by its revision.
func (e *epochFlags) rows(s epochs) []epochRow {
	var rows []epochRow
	for _, at := range s.etcd {
		rows = append(rows, epochRow{Where: "etcd " + at.Key, Epoch: at.Number, NoKey: at.KeyRevision == 0,
			Token: fence.Token(at.Revision), ClusterID: fmt.Sprintf("%x", at.ClusterID), Drift: driftOfKey(at)})
	}
	for i, d := range s.databases {
		row := epochRow{Where: "database " + e.names[i], Epoch: d.Number, Token: d.Highest.Token, Resource: d.Highest.Resource, Drift: s.drift(d)}
		if d.Raised != nil {
			row.RaisedAt, row.By, row.Reason = timeOrNil(d.Raised.At), d.Raised.Operator, d.Raised.Reason
		}
		rows = append(rows, row)
	}
	return rows
}

// What keeps holders from claiming, and the reasons of the rejections.
const (
	driftNoEpoch   = "the key holds no epoch: etcd grants nothing"
	driftBehind    = "etcd is behind: claims are rejected (epoch behind)"
	driftTooFar    = "etcd is too far ahead: claims are rejected (token jump)"
	driftTokensLow = "a fence's token is above etcd's revision: its claims are rejected (stale token, tokens went back)"
)

func driftOfKey(at etcd.Epoch) string {
	if at.Number == 0 {
		return driftNoEpoch
	}
	return ""
}

// drift compares a database with etcd.
func (s epochs) drift(d postgres.Epoch) string {
	for _, at := range s.etcd {
		switch {
		case at.Number == 0:
		case at.Number < d.Number:
			return driftBehind
		case at.Number > d.Number+d.MaxJump:
			return driftTooFar
		case at.Number == d.Highest.Epoch && int64(d.Highest.Token) > at.Revision:
			return driftTokensLow
		}
	}
	return ""
}
