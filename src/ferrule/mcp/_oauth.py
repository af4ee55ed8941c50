import httpx2


class SignIn:
    async def auth(self, url: str) -> httpx2.Auth:
        raise NotImplementedError
