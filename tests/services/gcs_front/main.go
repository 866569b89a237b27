// A GCS server on the loopback, for tests: fake-gcs-server, and what obstore says to GCS that it
// does not know.
//
// obstore writes by the XML interface: PUT /BUCKET/NAME, with x-goog-if-generation-match: 0 where
// nothing may be there, and uploads in parts. Both become uploads of the JSON interface, which
// fake-gcs-server decides about under one lock: of many who create a name one wins. Parts wait in
// memory until their upload is complete. Everything else is passed on.
//
// Who asks by the XML interface must be the one account that is known, whose key, made anew by each
// front, tests get at /_account: obstore signs tokens with it (JWT, RS256) and sends them along.
package main

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

const email = "tester@tests.iam.gserviceaccount.com"

type front struct {
	address string
	key     *rsa.PrivateKey
	behind  http.Handler
	lock    sync.Mutex
	count   int
	uploads map[string]map[int][]byte
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: gcs-front HOST:PORT")
	}
	address := os.Args[1]
	options := fakestorage.Options{NoListener: true, PublicHost: address, ExternalURL: "http://" + address}
	server, err := fakestorage.NewServerWithOptions(options)
	if err != nil {
		log.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		log.Fatal(err)
	}
	handler := &front{address: address, key: key, behind: server.HTTPHandler(), uploads: map[string]map[int][]byte{}}
	log.Fatal(http.ListenAndServe(address, handler))
}

func (f *front) ServeHTTP(answer http.ResponseWriter, asked *http.Request) {
	bucket, name := object(asked)
	query := asked.URL.Query()
	upload := query.Get("uploadId")
	switch {
	case asked.URL.Path == "/_account":
		f.account(answer)
	case bucket != "" && !f.knows(asked):
		answer.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(answer, "<Error><Code>AuthenticationRequired</Code><Message>Authentication required."+
			"</Message></Error>")
	case bucket != "" && !f.has(bucket):
		answer.WriteHeader(http.StatusNotFound)
		fmt.Fprint(answer, "<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist."+
			"</Message></Error>")
	case name == "":
		f.behind.ServeHTTP(answer, asked)
	case asked.Method == http.MethodPost && query.Has("uploads"):
		f.begin(answer, bucket, name)
	case asked.Method == http.MethodPut && upload != "":
		f.part(answer, asked, upload, query.Get("partNumber"))
	case asked.Method == http.MethodPost && upload != "":
		f.complete(answer, asked, bucket, name, upload)
	case asked.Method == http.MethodDelete && upload != "":
		f.take(upload)
		answer.WriteHeader(http.StatusNoContent)
	case asked.Method == http.MethodPut:
		body, err := io.ReadAll(asked.Body)
		if err == nil { // of a broken connection nothing is stored
			f.store(answer, asked, bucket, name, body)
		}
	default:
		f.behind.ServeHTTP(answer, asked)
	}
}

// The known account, as Google's files of keys tell it.
func (f *front) account(answer http.ResponseWriter) {
	raw, err := x509.MarshalPKCS8PrivateKey(f.key)
	if err != nil {
		answer.WriteHeader(http.StatusInternalServerError)
		return
	}
	told := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	_ = json.NewEncoder(answer).Encode(map[string]string{"type": "service_account", "client_email": email,
		"private_key": string(told), "private_key_id": "1", "gcs_base_url": "http://" + f.address})
}

// Whether a request carries a token of the known account that has not run out.
func (f *front) knows(asked *http.Request) bool {
	parts := strings.Split(strings.TrimPrefix(asked.Header.Get("Authorization"), "Bearer "), ".")
	if len(parts) != 3 {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || rsa.VerifyPKCS1v15(&f.key.PublicKey, crypto.SHA256, sum[:], signature) != nil {
		return false
	}
	claims := struct {
		Iss string
		Exp int64
	}{}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	return err == nil && json.Unmarshal(raw, &claims) == nil && claims.Iss == email && claims.Exp > time.Now().Unix()
}

// Whether there is such a bucket; fake-gcs-server answers by the JSON interface, or with 500.
func (f *front) has(bucket string) bool {
	told := httptest.NewRecorder()
	address := fmt.Sprintf("http://%s/storage/v1/b/%s", f.address, url.PathEscape(bucket))
	f.behind.ServeHTTP(told, httptest.NewRequest(http.MethodGet, address, nil))
	return told.Code == http.StatusOK
}

// The object that a request of the XML interface names; no name: it is none, or of a bucket.
func object(asked *http.Request) (string, string) {
	path := asked.URL.EscapedPath()
	for _, other := range []string{"/storage/", "/upload/", "/download/", "/_internal/"} {
		if strings.HasPrefix(path, other) {
			return "", ""
		}
	}
	bucket, escaped, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return unescaped(bucket), unescaped(escaped)
}

func unescaped(text string) string {
	told, err := url.PathUnescape(text)
	if err != nil {
		return text
	}
	return told
}

// Store a whole object by the JSON interface; true if it did.
func (f *front) store(answer http.ResponseWriter, asked *http.Request, bucket, name string, body []byte) bool {
	query := url.Values{"uploadType": {"media"}, "name": {name}}
	if generation := asked.Header.Get("x-goog-if-generation-match"); generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	address := fmt.Sprintf("http://%s/upload/storage/v1/b/%s/o?%s", f.address, bucket, query.Encode())
	told := httptest.NewRecorder()
	f.behind.ServeHTTP(told, httptest.NewRequest(http.MethodPost, address, bytes.NewReader(body)))
	if told.Code >= http.StatusMultipleChoices {
		answer.WriteHeader(told.Code)
		_, _ = answer.Write(told.Body.Bytes())
		return false
	}
	var made struct{ Generation, Etag string }
	if err := json.Unmarshal(told.Body.Bytes(), &made); err != nil {
		answer.WriteHeader(http.StatusInternalServerError)
		return false
	}
	answer.Header().Set("ETag", strconv.Quote(strings.Trim(made.Etag, `"`)))
	answer.Header().Set("x-goog-generation", made.Generation)
	return true
}

func (f *front) begin(answer http.ResponseWriter, bucket, name string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.count++
	upload := strconv.Itoa(f.count)
	f.uploads[upload] = map[int][]byte{}
	fmt.Fprintf(answer, "<InitiateMultipartUploadResult><Bucket>%s</Bucket><Key>-</Key><UploadId>%s"+
		"</UploadId></InitiateMultipartUploadResult>", bucket, upload)
}

func (f *front) part(answer http.ResponseWriter, asked *http.Request, upload, number string) {
	body, err := io.ReadAll(asked.Body)
	place, wrong := strconv.Atoi(number)
	f.lock.Lock()
	defer f.lock.Unlock()
	parts, known := f.uploads[upload]
	if err != nil || wrong != nil || !known {
		answer.WriteHeader(http.StatusNotFound)
		return
	}
	parts[place] = body
	answer.Header().Set("ETag", fmt.Sprintf(`"%s-%d"`, upload, place))
}

func (f *front) complete(answer http.ResponseWriter, asked *http.Request, bucket, name, upload string) {
	parts, known := f.take(upload)
	if !known {
		answer.WriteHeader(http.StatusNotFound)
		return
	}
	places := make([]int, 0, len(parts))
	for place := range parts {
		places = append(places, place)
	}
	sort.Ints(places)
	var whole []byte
	for _, place := range places {
		whole = append(whole, parts[place]...)
	}
	if f.store(answer, asked, bucket, name, whole) {
		fmt.Fprint(answer, `<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>`)
	}
}

func (f *front) take(upload string) (map[int][]byte, bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	parts, known := f.uploads[upload]
	delete(f.uploads, upload)
	return parts, known
}
