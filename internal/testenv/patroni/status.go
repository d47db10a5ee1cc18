package patroni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Status is what a node's Patroni says of it.
type Status struct {
	State       string `json:"state"` // "running", "starting", "stopped" and others
	Role        string `json:"role"`  // "master", "primary" or "replica"
	Timeline    int    `json:"timeline"`
	Replication []struct {
		State string `json:"state"`
	} `json:"replication"`
}

// Primary reports whether the node is a running primary.
func (s Status) Primary() bool {
	return s.State == "running" && (s.Role == "master" || s.Role == "primary")
}

// statusBound is how long a node may take to answer: one that is paused doesn't.
const statusBound = time.Second

// Status asks the node. It fails if Patroni doesn't answer within a second.
func (n *Node) Status(ctx context.Context) (s Status, err error) {
	text, err := n.ask(ctx, http.MethodGet, "/patroni", nil)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// leads asks whether the node is the primary and has the leader key in etcd.
func (n *Node) leads(ctx context.Context) (Status, error) {
	text, err := n.ask(ctx, http.MethodGet, "/primary", nil)
	if err != nil {
		return Status{}, err
	}
	var s Status
	return s, json.Unmarshal(text, &s)
}

// hasSynchronousStandby fails unless etcd says which standby is the synchronous one: only that one may become
// the primary. Postgres may name one before etcd does.
func (n *Node) hasSynchronousStandby(ctx context.Context) error {
	text, err := n.ask(ctx, http.MethodGet, "/cluster", nil)
	if err != nil {
		return err
	}
	var cluster struct {
		Members []struct {
			Role string `json:"role"`
		} `json:"members"`
	}
	if err := json.Unmarshal(text, &cluster); err != nil {
		return err
	}
	for _, m := range cluster.Members {
		if m.Role == "sync_standby" {
			return nil
		}
	}
	return errors.New("testenv: Patroni: no synchronous standby")
}

func (n *Node) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	bound := statusBound
	if body != nil {
		bound = time.Minute // a switchover is answered at its end
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var in bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&in).Encode(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, n.URL()+path, &in)
	if err != nil {
		return nil, err
	}
	req.Close = true // no connection outlives the answer
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	// A node that doesn't run answers /patroni with 503, and says why.
	if resp.StatusCode != http.StatusOK && path != "/patroni" {
		return nil, fmt.Errorf("testenv: Patroni of %s answers %s %s with %s: %s", n.name, method, path, resp.Status, strings.TrimSpace(string(text)))
	}
	return text, nil
}
