package etcdserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are an authority made at run time, and what it signs.
type Certificates struct {
	dir       string
	authority *x509.Certificate
	key       crypto.Signer
}

// NewCertificates makes an authority and a server's certificate for 127.0.0.1, and
// writes into dir what a server reads: ca.pem, server.pem and server-key.pem.
func NewCertificates(dir string) (*Certificates, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := &Certificates{dir: dir, key: key, authority: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fencekit testenv"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, c.authority, c.authority, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if c.authority, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	_, _, err = c.WriteClient("server", time.Now().Add(24*time.Hour))
	return c, errors.Join(err, c.write(c.CA(), "CERTIFICATE", der))
}

// Client is what a client with a certificate of that name needs, which is etcd's user where it requires
// authentication.
func (c *Certificates) Client(name string) (*tls.Config, error) {
	cert, err := c.sign(name, time.Now().Add(24*time.Hour))
	roots := x509.NewCertPool()
	roots.AddCert(c.authority)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, err
}

// CA is the file of the authority's certificate.
func (c *Certificates) CA() string { return filepath.Join(c.dir, "ca.pem") }

// WriteClient writes a client's certificate and key, and returns the files. They are good for a server too.
func (c *Certificates) WriteClient(name string, expires time.Time) (cert, key string, err error) {
	signed, err := c.sign(name, expires)
	if err != nil {
		return "", "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(signed.PrivateKey)
	cert, key = filepath.Join(c.dir, name+".pem"), filepath.Join(c.dir, name+"-key.pem")
	return cert, key, errors.Join(err, c.write(cert, "CERTIFICATE", signed.Certificate[0]), c.write(key, "PRIVATE KEY", der))
}

func (c *Certificates) serverFlags() []string {
	return []string{
		"--client-cert-auth", "--trusted-ca-file=" + c.CA(),
		"--cert-file=" + filepath.Join(c.dir, "server.pem"), "--key-file=" + filepath.Join(c.dir, "server-key.pem"),
	}
}

// sign makes a certificate for clients and servers: etcd's own gateway dials the server, with the server's certificate.
func (c *Certificates) sign(name string, expires time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: expires, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, c.authority, key.Public(), c.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func (c *Certificates) write(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
