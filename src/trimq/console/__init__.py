"""Console in the browser: page, style, JavaScript modules and texts in `static`. Only files; the HTTP port serves
them."""
