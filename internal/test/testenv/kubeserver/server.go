// Package kubeserver runs Kubernetes's API server on an etcd of its own for tests: what "kubectl apply" asks, without
// nodes, so that no pod ever runs. See package testenv.
package kubeserver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// BinaryVar names a build of internal/test/testenv/cmd/kube-apiserver, which is a module of its own: "make test-kubernetes"
// makes one.
const BinaryVar = "FENCEKIT_KUBE_APISERVER_BINARY"

// Server is an API server with a user who may do everything, and the user "app". Its methods may be called concurrently.
type Server struct {
	*process.Server
	etcd  *etcdserver.Server
	token string
	http  *http.Client
}

// Shared is the server of all tests of a binary.
var Shared = process.Shared(Start)

// Start starts both and returns once the API server is ready; it must be stopped by Stop. ctx bounds the start alone.
func Start(ctx context.Context) (*Server, error) {
	binary := os.Getenv(BinaryVar)
	if binary == "" {
		return nil, fmt.Errorf("testenv: %s is not set: run \"make test-kubernetes\"", BinaryVar)
	}
	etcd, err := etcdserver.Start(ctx, nil)
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer("kube-apiserver", 1)
	if err != nil {
		return nil, errors.Join(err, etcd.Stop(ctx))
	}
	k := &Server{Server: s, etcd: etcd, token: rand.Text()}
	// It signs a certificate of its own.
	k.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	key, tokens := s.Dir().Path("key.pem"), s.Dir().Path("tokens.csv")
	err = errors.Join(writeKey(key), os.WriteFile(tokens, []byte(k.token+",tests,1,system:masters\n"+k.AppToken()+",app,2\n"), 0o600))
	if err == nil {
		err = s.Start(ctx, process.Program{
			Command: func() (*exec.Cmd, error) {
				_, port, _ := strings.Cut(s.Address(0), ":")
				cmd := exec.Command(binary, "--etcd-servers="+etcd.Endpoint(), "--bind-address=127.0.0.1", "--secure-port="+port,
					"--cert-dir="+filepath.Join(s.Dir().Path("certificates")), "--token-auth-file="+tokens, "--authorization-mode=RBAC",
					"--service-account-issuer=https://kubernetes", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
					"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none")
				cmd.Dir = s.Dir().Path("")
				return cmd, nil
			},
			Ready: func(ctx context.Context) error {
				code, text, err := k.Do(ctx, http.MethodGet, "/readyz", "", nil)
				if err == nil && code != http.StatusOK {
					err = fmt.Errorf("testenv: kube-apiserver is not ready: %d %s", code, text)
				}
				return err
			},
		})
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(ctx), etcd.Stop(ctx))
	}
	return k, nil
}

func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return os.WriteFile(path, text, 0o600)
}

// Stop stops both, and removes their data.
func (k *Server) Stop(ctx context.Context) error {
	k.http.CloseIdleConnections()
	return errors.Join(k.Server.Stop(ctx), k.etcd.Stop(ctx))
}

// URL is where clients connect; they trust any certificate, and show Token as a bearer's.
func (k *Server) URL() string { return "https://" + k.Address(0) }

// Token is of the user who may do everything.
func (k *Server) Token() string { return k.token }

// AppToken is of the user "app", who may do what Roles bind to that name.
func (k *Server) AppToken() string { return "app-" + k.token }

// Etcd is where the objects are.
func (k *Server) Etcd() *etcdserver.Server { return k.etcd }

// Do sends a request to the API and returns what it answers.
func (k *Server) Do(ctx context.Context, method, path, contentType string, body []byte) (code int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, k.URL()+path, strings.NewReader(string(body)))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+k.token)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := k.http.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}
