// The first part of the binary: it unpacks the second part, once for each version, and becomes it.
//
// The second part is a directory with schedo, Python and the libraries that both need. It is unpacked to
// schedo/VERSION below the first of these that can be used: $CACHE_DIRECTORY (systemd), $XDG_CACHE_HOME,
// ~/.cache, $TMPDIR or /tmp. As this process then executes the unpacked program, there is one process with
// one pid: signals, exit codes, systemd and the lock of a store know nothing of the launcher.
//
// A process that runs from a directory holds a shared lock on it (flock), also after the exec. A process that
// unpacks a new version removes those that no process holds.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	exitCannotWork = 78 // EX_CONFIG, as schedo itself
	program        = "schedo"
)

//go:embed payload.tar.gz
var payload []byte

//go:embed payload.version
var version string

func main() {
	var problems []error
	for _, cache := range candidates() {
		problems = append(problems, become(cache))
	}
	fmt.Fprintf(os.Stderr, "schedo: cannot unpack itself and run; set XDG_CACHE_HOME to a directory that allows both:\n%v\n", errors.Join(problems...))
	os.Exit(exitCannotWork)
}

// become replaces this process by the program in the cache, or returns why it cannot.
func become(cache string) error {
	directory, lock, err := prepare(cache)
	if err != nil {
		return err
	}
	defer lock.Close()
	// Without the flag that closes it, the lock is held until the program ends.
	if _, _, failed := syscall.Syscall(syscall.SYS_FCNTL, lock.Fd(), syscall.F_SETFD, 0); failed != 0 {
		return failed
	}
	path := filepath.Join(directory, program)
	err = syscall.Exec(path, append([]string{ownPath()}, os.Args[1:]...), os.Environ())
	return &os.PathError{Op: "exec", Path: path, Err: err} // such as a file system that is mounted noexec
}

// ownPath returns the absolute path of this file as it was called: if that is a link, `schedo upgrade`
// follows it again.
func ownPath() string {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		path, _ = os.Executable()
	}
	return path
}

func candidates() []string {
	var found []string
	for _, variable := range []string{"CACHE_DIRECTORY", "XDG_CACHE_HOME"} {
		// systemd separates several directories by colons.
		if value, _, _ := strings.Cut(os.Getenv(variable), ":"); filepath.IsAbs(value) {
			found = append(found, filepath.Join(value, program))
		}
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) && home != "/" {
		found = append(found, filepath.Join(home, ".cache", program))
	}
	return append(found, filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d", program, os.Geteuid())))
}

// prepare returns the directory of this version, locked, and unpacks it if it is missing.
func prepare(cache string) (string, *os.File, error) {
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", nil, err
	}
	if err := checkOwner(cache); err != nil {
		return "", nil, err
	}
	directory := filepath.Join(cache, strings.TrimSpace(version))
	for range 10 { // another process may remove what this one is about to lock
		lock, err := open(directory)
		if err == nil {
			return directory, lock, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", nil, err
		}
		if err := unpackTo(cache, directory); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", nil, err
		}
	}
	return "", nil, fmt.Errorf("%s is removed again and again", directory)
}

// checkOwner refuses a directory into which another user could put a program.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s must be a directory that only this user can write", path)
	}
	return nil
}

// open locks the directory, and returns ErrNotExist if it is gone by then.
func open(directory string) (*os.File, error) {
	lock, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
		return nil, err
	}
	locked, err := lock.Stat()
	if err != nil {
		return nil, err
	}
	named, err := os.Stat(directory)
	if err != nil || !os.SameFile(locked, named) {
		lock.Close()
		return nil, os.ErrNotExist
	}
	return lock, nil
}

// unpackTo makes the directory with its complete content, or not at all.
func unpackTo(cache, directory string) error {
	partial, err := os.MkdirTemp(cache, "partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	lock, err := open(partial)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unpack(partial); err != nil {
		return err
	}
	removeUnused(cache, directory)
	err = os.Rename(partial, directory)
	if _, missing := os.Stat(directory); missing == nil {
		return nil // also if another process was faster
	}
	return err
}

func unpack(directory string) error {
	packed, err := gzip.NewReader(bytes.NewReader(payload))
	if err != nil {
		return err
	}
	archive := tar.NewReader(packed)
	var files []string
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return flush(files)
		}
		if err != nil {
			return err
		}
		path := filepath.Join(directory, header.Name)
		if err := write(path, header, archive); err != nil {
			return err
		}
		if header.Typeflag == tar.TypeReg {
			files = append(files, path)
		}
	}
}

func write(path string, header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(path, 0o700)
	case tar.TypeSymlink:
		return os.Symlink(header.Linkname, path)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(header.Mode)&0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// flush waits until the files are on the disk, so that a power cut leaves no directory with half of them.
func flush(paths []string) error {
	var flushing sync.WaitGroup
	problems := make([]error, len(paths))
	atOnce := make(chan struct{}, 32)
	for number, path := range paths {
		flushing.Add(1)
		atOnce <- struct{}{}
		go func() {
			defer func() { <-atOnce; flushing.Done() }()
			file, err := os.Open(path)
			if err == nil {
				err = errors.Join(file.Sync(), file.Close())
			}
			problems[number] = err
		}()
	}
	flushing.Wait()
	return errors.Join(problems...)
}

// removeUnused removes the other versions that no process has locked.
func removeUnused(cache, directory string) {
	entries, _ := os.ReadDir(cache)
	for _, entry := range entries {
		path := filepath.Join(cache, entry.Name())
		if path == directory {
			continue
		}
		other, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(other.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(path)
		}
		other.Close()
	}
}
