package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
)

// withEtcd connects, calls do, and closes the client. It treats an error of do as etcd's,
// unless it has an exit code already.
func (e *etcdFlags) withEtcd(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	config, err := e.clientConfig()
	if err != nil {
		return err
	}
	client, err := e.open(ctx, config)
	if err != nil {
		return e.explain(config, err)
	}
	defer client.Close()
	if err = e.ping(ctx, client); err == nil {
		err = do(ctx, client)
	}
	return e.explain(config, err)
}

// open returns a client that has logged in, if there is a user: only then it has asked etcd.
func (e *etcdFlags) open(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	if err := refused(ctx, config.Endpoints); err != nil && config.Username != "" {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, e.loginError(ctx, config, err)
	}
	return client, nil
}

// refused returns why no request can reach etcd, if each endpoint refuses the connection. The client
// would try again until its time is up.
func refused(ctx context.Context, endpoints []string) error {
	dialer := net.Dialer{Timeout: time.Second}
	var last error
	for _, endpoint := range endpoints {
		_, address, found := strings.Cut(endpoint, "://")
		if !found {
			address = endpoint
		}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		last = err
	}
	return &fence.UnavailableError{Op: "reach etcd", Reason: fence.Unreachable, Err: last}
}

// ping reports whether etcd answers, whatever it says of the epoch.
func (e *etcdFlags) ping(ctx context.Context, client *clientv3.Client) error {
	inspector, err := e.inspector(client)
	if err != nil {
		return cli.UsageErrorf("%w", err)
	}
	if err := refused(ctx, client.Endpoints()); err != nil {
		return err
	}
	_, err = inspector.Epoch(ctx)
	if errors.Is(err, rpctypes.ErrPermissionDenied) || hasReason(err, fence.InvalidEpoch) {
		return nil
	}
	return err
}

// loginError returns why the client could not log in. If etcd doesn't answer, the client
// doesn't say why, but one without a user does.
func (e *etcdFlags) loginError(ctx context.Context, config clientv3.Config, err error) error {
	if errors.Is(err, rpctypes.ErrAuthFailed) {
		return err
	}
	config.Username, config.Password = "", ""
	client, failed := clientv3.New(config)
	if failed != nil {
		return err
	}
	defer client.Close()
	if reached := e.ping(ctx, client); hasReason(reached, fence.Unreachable) {
		return reached
	}
	return err
}

// explain adds to an error of etcd what to do about it.
func (e *etcdFlags) explain(config clientv3.Config, err error) error {
	if err == nil || errors.As(err, new(*cli.ExitError)) {
		return err
	}
	if hasReason(err, fence.Unreachable) && config.TLS != nil && !aboutTLS(err) {
		if alert := tlsAlert(config); alert != nil {
			err = fmt.Errorf("%w (%w)", err, alert)
		}
	}
	if advice := e.advice(err); advice != "" {
		err = fmt.Errorf("%w\n%s", err, advice)
	}
	return cli.NotReady(err)
}

func (e *etcdFlags) advice(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Sprintf("Give the user's role that right, or correct --etcd-user or --etcd-prefix (%s).", e.prefix)
	case errors.Is(err, rpctypes.ErrAuthFailed), hasReason(err, fence.Denied):
		return "Check --etcd-user and its password, in " + etcdPasswordVariable + " or --etcd-password-file; or give a certificate: --etcd-cert, --etcd-key."
	case !hasReason(err, fence.Unreachable):
		return ""
	case aboutTLS(err):
		return "Check http or https in --etcd-endpoints, and the certificates: --etcd-cacert, --etcd-cert, --etcd-key."
	}
	return "Check that etcd runs, and where: --etcd-endpoints (FENCEKIT_ETCD_ENDPOINTS) is " + strings.Join(e.endpoints, ",") + "."
}

func hasReason(err error, reason fence.UnavailableReason) bool {
	away := (*fence.UnavailableError)(nil)
	return errors.As(err, &away) && away.Reason == reason
}

// tlsAlert connects once more, to learn why the first endpoint rejects the client's certificate;
// nil if it doesn't. The server says so after the handshake, and breaks the connection, so
// that the client may not read it.
func tlsAlert(config clientv3.Config) error {
	address := strings.TrimPrefix(config.Endpoints[0], "https://")
	dialer := &net.Dialer{Timeout: config.DialTimeout}
	settings := config.TLS.Clone()
	settings.NextProtos = []string{"h2"}
	conn, err := tls.DialWithDialer(dialer, "tcp", address, settings)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(config.DialTimeout))
	_, err = conn.Read(make([]byte, 1))
	if alert := (*net.OpError)(nil); errors.As(err, &alert) && alert.Op == "remote error" {
		return err
	}
	return nil
}

// aboutTLS reports whether client and server don't agree on TLS. gRPC has no type for that. A
// server that speaks TLS breaks a plain connection before it has said anything.
func aboutTLS(err error) bool {
	text := err.Error()
	for _, sign := range []string{"tls: ", "x509: ", "http or https?", "error reading server preface"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
