package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// NotFoundError says where a server's program was looked for and what was wrong there, in order.
type NotFoundError struct {
	Server string
	Tried  []error
	// Advice is the command that installs it, and what else may help.
	Advice string
}

func (e *NotFoundError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "testenv: found no %s to run:", e.Server)
	for _, err := range e.Tried {
		fmt.Fprintf(&text, "\n  %v", err)
	}
	return text.String() + "\ninstall one: " + e.Advice
}

// Unwrap gives the reason of each attempt.
func (e *NotFoundError) Unwrap() []error { return e.Tried }

// Installed is a program that packages install.
type Installed struct {
	Server string
	// Places are where it may be: a name is looked for on the PATH.
	Places []string
	// Arguments make it print its version. Default: --version.
	Arguments []string
	// Run are what Start has it run with, before the configuration file. Default: none.
	Run []string
	// Usable says what is wrong with one that was found. Default: nothing.
	Usable func(path, version string) error
	Advice string
}

var versionNumber = regexp.MustCompile(`\d[\w.]*`)

// Find returns the path and the version, as "15.18", of the first program that is there. It fails with
// *NotFoundError if there is none.
func (p *Installed) Find(ctx context.Context) (path, version string, err error) {
	none := &NotFoundError{Server: p.Server, Advice: p.Advice}
	for _, place := range p.Places {
		path, version, err := p.inspect(ctx, place)
		if err == nil {
			return path, version, nil
		}
		if ctx.Err() != nil {
			return "", "", context.Cause(ctx)
		}
		none.Tried = append(none.Tried, fmt.Errorf("%s: %w", place, err))
	}
	return "", "", none
}

// Needed has Missing look for the program.
func (p *Installed) Needed() {
	Needs(p.Server, func(ctx context.Context) error {
		_, _, err := p.Find(ctx)
		return err
	})
}

func (p *Installed) inspect(ctx context.Context, place string) (path, version string, err error) {
	if path, err = exec.LookPath(place); err != nil {
		return "", "", errors.Unwrap(err)
	}
	arguments := p.Arguments
	if arguments == nil {
		arguments = []string{"--version"}
	}
	out, err := exec.CommandContext(ctx, path, arguments...).Output()
	if err != nil {
		return "", "", err
	}
	version = versionNumber.FindString(string(out))
	if p.Usable != nil {
		err = p.Usable(path, version)
	}
	return path, version, err
}

// Start starts the program on one port, with a configuration file, and returns once it is ready. It must be stopped by
// Stop. It fails with *NotFoundError if none is installed. ctx bounds the start alone.
func (p *Installed) Start(ctx context.Context, configuration func(s *Server, version string) string, ready func(context.Context, *Server) error) (*Server, error) {
	path, version, err := p.Find(ctx)
	if err != nil {
		return nil, err
	}
	account, err := ServerAccount()
	if err != nil {
		return nil, err
	}
	s, err := NewServer(p.Places[0], 1)
	if err != nil {
		return nil, err
	}
	dir, file := s.Dir().Path("home"), p.Places[0]+".conf"
	text := []byte(configuration(s, version))
	err = s.Start(ctx, Program{
		Command: func() (*exec.Cmd, error) {
			return account.Command(dir, path, append(slices.Clone(p.Run), file)...), account.WriteFile(dir, file, text)
		},
		Ready: func(ctx context.Context) error { return ready(ctx, s) },
	})
	if err != nil {
		return nil, err
	}
	s.Announce(p.Server, fmt.Sprintf("local %s (%s)", path, version))
	return s, nil
}

// Account is the user that servers run as.
type Account struct {
	name       string
	credential *syscall.Credential // nil: the user of this process
}

func (a *Account) String() string { return a.name }

// ServerAccount is the user of this process; for root, as which Postgres and PgBouncer don't run, it is the user
// postgres, or else the user nobody.
func ServerAccount() (*Account, error) {
	if os.Getuid() != 0 {
		return &Account{name: "user " + strconv.Itoa(os.Getuid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return &Account{"user " + name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, errors.Join(err1, err2)
	}
	return nil, errors.New("testenv: Postgres does not run as root, and there is no user postgres or nobody: run as an ordinary user")
}

// Own gives a file or directory to the account.
func (a *Account) Own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// Mkdir makes a directory that only the account can enter.
func (a *Account) Mkdir(dir string) error { return errors.Join(os.MkdirAll(dir, 0o700), a.Own(dir)) }

// WriteFile writes a file in such a directory, which it makes.
func (a *Account) WriteFile(dir, name string, text []byte) error {
	file := filepath.Join(dir, name)
	return errors.Join(a.Mkdir(dir), os.WriteFile(file, text, 0o600), a.Own(file))
}

// Command is a command run by the account in dir, which it has to be able to enter: the working directory of
// this process may be none.
func (a *Account) Command(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(Environ("PG", "LC_"), "LC_ALL=C")
	if a.credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	}
	return cmd
}
